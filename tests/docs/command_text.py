"""Command lines of ours inside text: which command they call, and whether it would take their options."""

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any, Final

from typer.exceptions import Exit

from reference.command_lines import commands
from shared.settings.command_settings import PROGRAM

_MAKES: Final = ("up", "demo")  # targets whose ARGS are those of the command with the same name
_ASSIGNMENT: Final = re.compile(r"[A-Z_]+=")
_ENDS: Final = frozenset({"&&", "||", "|", ";", "&", ">", "<"})


@cache
def parsers() -> dict[str, Any]:
    """Every command's parser."""
    return commands()


def calls(line: str) -> Iterator[list[str]]:
    """The words of each call of draftmesh in a line of shell, from the program's name on; `make up` is such a call."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&<>")
    lexer.whitespace_split = True
    part: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set(";|&<>"):
            yield from _ours(part)
            part = []
        else:
            part.append(word)


def _ours(words: list[str]) -> Iterator[list[str]]:
    while words and (_ASSIGNMENT.match(words[0]) or words[0] in ("exec", "env", "sudo")):
        words = words[1:]
    if words and words[0].rpartition("/")[2] == PROGRAM:
        yield [PROGRAM, *words[1:]]
    if words[:1] == ["make"] and len(words) > 1 and words[1] in _MAKES:
        given = next((word.removeprefix("ARGS=") for word in words if word.startswith("ARGS=")), "")
        yield [PROGRAM, words[1], *shlex.split(given)]


def split(words: list[str]) -> tuple[str, list[str]]:
    """The longest command that the words begin with, and the rest."""
    count = max(count for count in range(1, len(words) + 1) if " ".join(words[:count]) in parsers())
    return " ".join(words[:count]), words[count:]


def parse(words: list[str]) -> None:
    """Let the command's own parser read a whole call. Raises what it raises."""
    name, rest = split(words)
    with suppress(Exit):  # --version and --help end there
        parsers()[name].make_context(name, list(rest))


def flags(name: str) -> set[str]:
    """Every option of a command, `--help` among them."""
    return {flag for parameter in parsers()[name].params for flag in (*parameter.opts, *parameter.secondary_opts)} | {
        "--help"
    }
