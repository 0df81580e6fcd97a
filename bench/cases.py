"""Answers that repeat what is known: edited files, agents at work, and prose for contrast, made from our own files."""

import difflib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from bench.edits import edited

ROOT: Final = Path(__file__).parents[1]
_FOLDERS: Final = ("services/gateway", "services/verifier", "services/launcher", "shared")
_FILE_LINES: Final = range(50, 200)
_TOOLS: Final = (
    "You change code with tools. Answer with one JSON call per turn, or with SEARCH and REPLACE blocks that quote the"
    " lines to change. Tools: read_file(path), run_tests(path), search(pattern). End with a summary and the diff."
)


@dataclass(frozen=True, slots=True)
class Case:
    """One request and what the target will say to it."""

    workload: str
    prompt: tuple[int, ...]
    answer: tuple[int, ...]


def cases(tokenize: Callable[[str], list[int]], files: int = 10) -> list[Case]:
    """The requests of every workload in the order in which they are asked; the same for the same files."""
    sources = _sources()
    random = Random(1)
    chosen = random.sample(sorted(sources), min(files, len(sources)))
    others = [text for path, text in sources.items() if path not in chosen]
    found: list[tuple[str, str, str]] = []
    for kept in (0.9, 0.7):
        for path in chosen:
            new = edited(sources[path], kept, random, others)
            found.append((f"edit {kept:.0%}", _edit_request(path, sources[path]), f"```python\n{new}```"))
    for path in chosen[: files // 2]:
        # Two people ask for much the same, so the second one's answers were mostly given before.
        first = edited(sources[path], 0.9, random, others)
        for text in (first, edited(first, 0.97, random, others)):
            found += (("agent", prompt, answer) for prompt, answer in _conversation(path, sources[path], text))
        found.append(("unseen file", f"Write {path} as agreed.\n", f"```python\n{first}```"))
    found += (("prose", prompt, answer) for prompt, answer in _prose())
    return [Case(name, tuple(tokenize(prompt)), tuple(tokenize(answer))) for name, prompt, answer in found]


def _sources() -> dict[str, str]:
    paths = (path for folder in _FOLDERS for path in sorted((ROOT / folder).glob("*.py")))
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    return {path: text for path, text in texts.items() if text.count("\n") in _FILE_LINES}


def _edit_request(path: str, text: str) -> str:
    return (
        f"Here is {path}:\n```python\n{text}```\nMake the changes that we talked about. Answer with the whole file.\n"
    )


def _conversation(path: str, old: str, new: str) -> Iterator[tuple[str, str]]:
    """What is asked and answered at each turn of an agent that turns `old` into `new`."""
    said = f"{_TOOLS}\nuser: Please change {path} as in the review and run its tests.\n"
    test = f"tests/unit/test_{Path(path).name}"
    numbered = "".join(f"{number:4} {line}" for number, line in enumerate(new.splitlines(keepends=True), 1))
    turns = (
        (f"I will read the file first.\n{_call('read_file', path=path)}\n", old),
        (_blocks(path, old, new), f"applied; {path} is now\n{numbered}"),
        (f"Now the tests.\n{_call('run_tests', path=test)}\n", _failure(path, new)),
        (f"The test fails, so I look at the file again.\n{_call('read_file', path=path)}\n", new),
        (f"```python\n{new}```\n", "saved"),
        (f"Done. The whole change:\n```diff\n{_diff(path, old, new)}```\n", ""),
    )
    for answer, result in turns:
        said += "assistant: "
        yield said, answer
        said += f"{answer}tool: {result}\n"


def _call(tool: str, **arguments: str) -> str:
    return json.dumps({"tool": tool, "arguments": arguments})


def _blocks(path: str, old: str, new: str) -> str:
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    text = "These are my changes.\n"
    for group in difflib.SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(1):
        searched = "".join(before[group[0][1] : group[-1][2]])
        replaced = "".join(after[group[0][3] : group[-1][4]])
        text += f"{path}\n<<<<<<< SEARCH\n{searched}=======\n{replaced}>>>>>>> REPLACE\n"
    return text


def _failure(path: str, new: str) -> str:
    lines = new.splitlines()
    at = len(lines) * 2 // 3
    quoted = "\n".join(f"    {line}" for line in lines[at - 3 : at])
    return f"FAILED\n{path}:{at}: in test\n{quoted}\nE   AssertionError: {lines[at]}\n1 failed, 11 passed in 0.31s"


def _diff(path: str, old: str, new: str) -> str:
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{path}", f"b/{path}", n=2
    )
    return "".join(lines)


def _prose() -> Iterator[tuple[str, str]]:
    for path in ("README.md", "docs/rationale.md"):
        parts = (ROOT / path).read_text().split("\n## ")
        for part in parts[:8]:
            title, _, body = part.partition("\n")
            yield f"Write the section {title!r}.\n", body
