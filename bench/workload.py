"""The requests of the benchmark: three kinds of text, each long enough not to end by itself, at both temperatures."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from bench.tasks import Author, Task

TOKENS: Final = 96
TEMPERATURES: Final = (0.0, 1.0)

PROMPTS: Final = {
    "chat": (
        "I want to start running but I have not exercised for years. Give me a plan for the first four weeks, with"
        " what to do on each day, how to warm up, what to eat before and after a run, and how I notice that I do too"
        " much. Explain the reason for each piece of advice so that I can adapt the plan later."
    ),
    "code": (
        "Write a Python class `LRUCache` with the methods `get`, `put`, `delete` and `resize`, type hints and"
        " docstrings. It must evict the least recently used entry when it is full. Then write five unit tests for it"
        " with pytest, one for each method and one for eviction, and explain each of them line by line."
    ),
    "story": (
        "Tell the story of a lighthouse keeper who finds a message in a bottle that was written by herself thirty"
        " years ago. Begin with the storm that carried it ashore, describe the lighthouse and the village in detail,"
        " and let the reader discover slowly what the message asks her to do."
    ),
}


def requests(repetition: int, tokens: int = TOKENS, ids: Mapping[str, tuple[int, ...]] = {}) -> list[Task]:
    """The requests of one repetition; each repetition has seeds of its own, the same on every run.

    `ids` are the prompts as `rendered` gives them, for a contestant that takes no messages.
    """
    return [
        _task(name, temperature, 1000 * repetition + index, tokens, ids)
        for temperature in TEMPERATURES
        for index, name in enumerate(PROMPTS)
    ]


def warm_up(ids: Mapping[str, tuple[int, ...]]) -> Task:
    """A short request, so that files are mapped in."""
    return _task("chat", 0.0, 1, 16, ids)


def _task(name: str, temperature: float, seed: int, tokens: int, ids: Mapping[str, tuple[int, ...]]) -> Task:
    messages = ({"role": "user", "content": PROMPTS[name]},)
    return Task(
        name=name, messages=messages, prompt=ids.get(name, ()), temperature=temperature, seed=seed, tokens=tokens
    )


def rendered(model: Path) -> dict[str, tuple[int, ...]]:
    """Every prompt's token ids under the model's own chat template."""
    with closing(Author(model)) as author:
        return {one.name: one.prompt for one in author.tasks(PROMPTS, temperature=0.0, tokens=TOKENS)}
