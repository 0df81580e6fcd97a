"""The requests of the benchmark: three kinds of text, each long enough not to end by itself, at both temperatures."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jinja2.sandbox import ImmutableSandboxedEnvironment

from shared.model.llama.model import Model
from shared.model.llama.vocabulary import Vocabulary

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, the same for every configuration."""

    name: str
    temperature: float
    seed: int
    tokens: int

    @property
    def messages(self) -> list[dict[str, str]]:
        return [{"role": "user", "content": PROMPTS[self.name]}]

    def body(self, speculative: bool | str) -> dict[str, Any]:
        """The request for the gateway. The prefix cache stays out of it: a hit would hide the prefill."""
        return {
            "messages": self.messages,
            "temperature": self.temperature,
            "seed": self.seed,
            "max_tokens": self.tokens,
            "speculative": speculative,
            "cache_prompt": False,
        }


def requests(repetition: int, tokens: int = TOKENS) -> list[Request]:
    """The requests of one repetition; each repetition has seeds of its own, the same on every run."""
    return [
        Request(name=name, temperature=temperature, seed=1000 * repetition + index, tokens=tokens)
        for temperature in TEMPERATURES
        for index, name in enumerate(PROMPTS)
    ]


def rendered(model: Path) -> dict[str, list[int]]:
    """Every prompt's token ids under the model's own chat template, for the loop that has no gateway."""
    loaded = Model(model, vocab_only=True)
    try:
        return {name: _render(loaded.vocabulary, text) for name, text in PROMPTS.items()}
    finally:
        loaded.close()


def _render(vocabulary: Vocabulary, text: str) -> list[int]:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(vocabulary.chat_template() or "")
    prompt = template.render(messages=[{"role": "user", "content": text}], add_generation_prompt=True)
    return vocabulary.tokenize(prompt)
