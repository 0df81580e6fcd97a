"""What the documentation says to type exists: commands, options, variables and targets, in blocks and in sentences."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from shared.model import hub
from shared.settings import settings_file
from shared.settings.command_settings import PROGRAM
from tests.docs.blocks import BLOCKS, LANGUAGES, PAGES, ROOT, Block, prose
from tests.docs.command_text import calls, flags, parse, parsers, split

SHELL = [block for block in BLOCKS if block.language in ("sh", "console")]
# Options of other programs that the text speaks of.
FOREIGN = {
    "--per-request-spec-decode-metrics": "vLLM's",
    "--settings": "Claude Code's",
    "--build-arg": "docker's",
    "--scale": "docker compose's",
    "--profile": "docker compose's",
    "--first": "python -m bench.newcomer's",
    "--backend": "make device-kit's",
    "--leave-out": "make device-kit's",
    "--llama-wheel": "make device-kit's",
}


def named(block: Block) -> str:
    return block.name


def inline(page: Path) -> list[str]:
    """Pieces of inline code outside blocks."""
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose(page))]


@pytest.mark.parametrize("block", BLOCKS, ids=named)
def test_a_block_is_of_a_known_language(block: Block) -> None:
    assert block.language in LANGUAGES


@pytest.mark.parametrize("block", SHELL, ids=named)
def test_a_command_of_ours_would_take_what_a_block_gives_it(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in {parameter.envvar for parser in parsers().values() for parameter in parser.params}:
        monkeypatch.delenv(str(variable), raising=False)
    monkeypatch.setenv(settings_file.VARIABLE, settings_file.OFF)
    monkeypatch.setenv(hub.OFFLINE, "0")  # reading `--offline` changes it
    for line in block.commands():
        for words in calls(line):
            parse(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_sentences_exist(page: Path) -> None:
    for code in inline(page):
        if code.startswith(f"{PROGRAM} ") and not code.startswith(f"{PROGRAM} …"):
            words = shlex.split(code)
            name, rest = split(words)
            group = any(known.startswith(f"{' '.join(words)} ") for known in parsers())
            assert group or name != PROGRAM or rest[0].startswith("-"), f"no such command: {code}"
            unknown = {word.partition("=")[0] for word in rest if word.startswith("--") and word != "--"} - flags(name)
            assert not unknown, f"`{code}`: {name} has no {unknown}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_in_sentences_exist(page: Path) -> None:
    known = {flag for name in parsers() for flag in flags(name)} | FOREIGN.keys()
    said = {code.split()[0].partition("=")[0] for code in inline(page) if code.startswith("--")}
    assert not said - known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_variables_of_ours_are_read_somewhere(page: Path) -> None:
    said = set(re.findall(r"\bDRAFTMESH_[A-Z_]+\b", page.read_text()))
    sources = [*(path for folder in ("services", "shared", "bench") for path in (ROOT / folder).rglob("*.py"))]
    sources.append(ROOT / "compose.yaml")  # which hands some on under other names
    code = "\n".join(path.read_text() for path in sources)
    options = {str(parameter.envvar) for parser in parsers().values() for parameter in parser.params}
    assert not {name for name in said - options if name not in code}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_targets_of_make_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    said = set(re.findall(r"`make ([a-z-]+)", page.read_text()))
    said |= {
        match for block in SHELL if block.page == page for match in re.findall(r"^make ([a-z-]+)", block.text, re.M)
    }
    assert not {target for target in said if f"\n{target}:" not in makefile}


def test_every_page_is_in_the_sites_menu() -> None:
    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    listed = set(re.findall(r"[\w/-]+\.md", str(menu)))
    assert listed == {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("DRAFTMESH_PORT=1 .venv/bin/draftmesh up --port 2 # why", [["draftmesh", "up", "--port", "2"]]),
        ('make up ARGS="--ctx 8 --port 1" && curl x', [["draftmesh", "up", "--ctx", "8", "--port", "1"]]),
        ("draftmesh status --json | jq .", [["draftmesh", "status", "--json"]]),
        ("echo draftmesh", []),
    ],
)
def test_calls_are_found_in_shell(line: str, words: list[list[str]]) -> None:
    assert list(calls(line)) == words


def test_an_option_that_does_not_exist_is_noticed() -> None:
    with pytest.raises(Exception, match="--nonsense"):
        parse(["draftmesh", "up", "--nonsense"])
    with pytest.raises(Exception, match="valid integer"):
        parse(["draftmesh", "up", "--port", "many"])
