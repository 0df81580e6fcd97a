"""What is installed is what was meant: by version and hash, and never a package of our name that is not ours."""

import ast
import re
import subprocess
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
LOCKS = {"requirements.txt", "install/llama.txt"}
ENTRY = re.compile(r"^([\w.-]+)==(\S+)[^\n]*((?:\n    --hash=sha256:[0-9a-f]{64}(?: \\)?)+)$", re.MULTILINE)


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(file: str) -> dict[str, str]:
    return {plain(name): version for name, version, _ in ENTRY.findall((ROOT / file).read_text())}


def pinned() -> dict[str, str]:
    lines = (line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    return {plain(name): version for name, version in lines}


def tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in done.stdout.split("\0") if name]


@pytest.mark.parametrize("file", sorted(LOCKS))
def test_a_list_of_hashes_has_a_hash_for_each_version_and_nothing_else(file: str) -> None:
    text = (ROOT / file).read_text()
    assert ENTRY.sub("", text).strip() == ""
    assert locked(file)


def test_hashes_are_of_the_versions_that_are_pinned() -> None:
    ours = pinned()
    for file in LOCKS:
        versions = locked(file)
        assert {name: version for name, version in versions.items() if ours.get(name, version) != version} == {}
    # What only other systems need, and what builds our own package, is in no environment of which versions are noted.
    assert locked("requirements.txt").keys() - ours.keys() <= {
        "async-timeout",
        "httpx2-jsfetch",
        "setuptools",
        "colorama",
    }


def test_every_dependency_has_a_hash() -> None:
    needed = {plain(Requirement(line).name) for line in requires("draftmesh") or () if "extra ==" not in line}
    assert needed <= locked("requirements.txt").keys() | locked("install/llama.txt").keys()
    assert locked("install/llama.txt").keys() == {"llama-cpp-python"}


def test_the_image_takes_only_packages_with_the_right_hash() -> None:
    installs = re.findall(r"\bpip install ([^\n]+)", (ROOT / "Dockerfile").read_text())
    assert installs == [
        "--require-hashes --no-deps --force-reinstall -r requirements.txt",
        "--no-deps --no-build-isolation .",
    ]


def test_no_text_installs_our_name_from_the_public_index() -> None:
    """The name there is not ours, and whoever owns it could put anything under it."""
    told = re.compile(
        r"(?:pip3?|pipx|uvx?(?: tool| pip)?) (?:install|run|add)(?: +(?:-|\S*[./])\S*)* +['\"]?draftmesh\b"
    )
    texts = [
        path for path in tracked() if path.suffix in (".md", ".py", ".toml", ".yaml", ".service", ".html", ".sh", "")
    ]
    found = [path for path in texts if path != Path(__file__) and told.search(path.read_text(errors="replace"))]
    assert found == []
    assert told.search("run pip install 'draftmesh[otel]'")
    assert told.search("pipx install --constraint constraints.txt draftmesh")


def test_the_cache_that_unpickles_files_is_not_used() -> None:
    """diskcache comes with llama-cpp-python and unpickles what it finds in its folder (CVE-2025-69872)."""
    named = []
    for path in (*ROOT.glob("shared/**/*.py"), *ROOT.glob("services/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Import(names=names) | ast.ImportFrom(names=names):
                    words = {name.name for name in names} | {getattr(node, "module", "")}
                case ast.Attribute(attr=word) | ast.Name(id=word):
                    words = {word}
                case _:
                    words = set()
            named += [path for word in words if re.search(r"diskcache|Llama(Disk)?Cache|set_cache", str(word))]
    assert named == []
    assert "CVE-2025-69872" in (ROOT / "docs/security.md").read_text()
