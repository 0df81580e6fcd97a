"""Groups a repository's files into models, and finds the model for a quantisation. Pure.

A model is one GGUF file or its shards (`…-00001-of-00003.gguf`, as llama.cpp's gguf-split names them).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, Generic, Protocol, TypeVar

from rich.filesize import decimal

DEFAULT_QUANT: Final = "Q4_K_M"  # a common balance of size and quality; most repositories have it
_SUFFIX: Final = ".gguf"
_SHARD: Final = re.compile(r"-(\d{5})-of-(\d{5})$")
_QUANT: Final = re.compile(
    r"(?<![A-Za-z0-9])(I?Q\d\w*|T?Q\d_\d|MXFP4\w*|BF16|F16|FP16|F32)(?![A-Za-z0-9])", re.IGNORECASE
)


class SizedFile(Protocol):
    """A file with its path below a common root and its size in bytes."""

    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int: ...


F = TypeVar("F", bound=SizedFile)


class NoChoice(ValueError):
    """No model matches, or more than one; the message lists them in one line."""


@dataclass(frozen=True, slots=True)
class Group(Generic[F]):
    """The files of one model, in the order of their shards."""

    name: str  # the path without shard number and suffix
    files: Sequence[F]
    expected: int  # how many files the model has

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def whole(self) -> bool:
        return len(self.files) == self.expected

    @property
    def quant(self) -> str:
        """The quantisation in the model's name, or its whole name if there is none in it."""
        found = _QUANT.findall(self.name)
        return str(found[-1]) if found else self.name


def groups(files: Iterable[F]) -> list[Group[F]]:
    """The models among `files`, by name; without image projectors, which are not language models."""
    found: dict[str, list[F]] = {}
    for file in sorted(files, key=lambda file: file.path):
        name = PurePosixPath(file.path).name.lower()
        if name.endswith(_SUFFIX) and not name.startswith("mmproj"):
            found.setdefault(stem(file.path), []).append(file)
    return [Group(name, members, _expected(members)) for name, members in found.items()]


def stem(path: str) -> str:
    """`path` without the suffix and the number of the shard."""
    return _SHARD.sub("", path.removesuffix(_SUFFIX))


def is_shard(path: str) -> bool:
    """Whether `path` names one of several files of a model."""
    return _SHARD.search(path.removesuffix(_SUFFIX)) is not None


def shard(name: str, number: int, count: int) -> str:
    """The name of file `number`, from 1 on, of a split model."""
    return f"{name}-{number:05}-of-{count:05}{_SUFFIX}"


def _expected(files: Sequence[SizedFile]) -> int:
    match = _SHARD.search(files[0].path.removesuffix(_SUFFIX))
    return int(match[2]) if match else 1


def pick(models: Sequence[Group[F]], quant: str) -> Group[F]:
    """The model that `quant` names: a quantisation, or a part of the name; empty: the usual one.

    Raises `NoChoice`, also for a model that lacks shards.
    """
    if not models:
        raise NoChoice("the repository holds no GGUF model")
    if not quant and len(models) == 1:
        return _complete(models[0])
    matches = matching(models, quant or DEFAULT_QUANT)
    if len(matches) == 1:
        return _complete(matches[0])
    if matches:
        raise NoChoice(f"several files match, name one: {', '.join(_shown(model.name, model) for model in matches)}")
    raise NoChoice(
        f"no file matches {quant or DEFAULT_QUANT}; the repository has "
        + ", ".join(_shown(model.quant, model) for model in sorted(models, key=lambda model: model.size))
    )


def matching(models: Sequence[Group[F]], wanted: str) -> list[Group[F]]:
    """The `models` that `wanted` may mean, ignoring case."""
    wanted = stem(wanted.lower())  # a shard's name means its model
    matches = [model for model in models if wanted in model.name.lower()]
    # "Q4_K" is also part of Q4_K_M and Q4_K_S, so an exact match wins.
    exact = [model for model in matches if wanted in {found.lower() for found in _QUANT.findall(model.name)}]
    named = [model for model in matches if model.name.lower() == wanted]
    return named or exact or matches


def _shown(name: str, model: Group[F]) -> str:
    return f"{name} ({decimal(model.size)})" if model.size else name


def _complete(model: Group[F]) -> Group[F]:
    if not model.whole:
        raise NoChoice(f"{len(model.files)} of the {model.expected} shards of {model.name} are there")
    return model
