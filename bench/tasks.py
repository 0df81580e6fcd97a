"""What everybody is asked: chat messages with a law and a seed, and the same as token ids for who takes those."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from services.gateway.prompts.template import ChatTemplate
from shared.model.llama.model import Model

Messages = tuple[dict[str, str], ...]

# Short questions with long answers: a prompt's rows would otherwise take half of the time.
QUESTIONS: Final = {
    "bread": "Explain step by step how to bake a loaf of bread.",
    "moon": "Why does the moon have phases? Explain it to a child.",
    "river": "Describe the course of a river from its source to the sea.",
    "garden": "How do I plan a small vegetable garden? Give many details.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One request, the same for every contestant."""

    name: str
    messages: Messages
    prompt: tuple[int, ...] = ()  # the messages under the model's own template, for who takes no messages
    temperature: float
    seed: int
    tokens: int

    def body(self, speculative: bool | str, cache_prompt: bool = False) -> dict[str, Any]:
        """For our gateway. Without the prefix cache unless asked for: a hit would hide the prefill."""
        return {
            "messages": list(self.messages),
            "temperature": self.temperature,
            "seed": self.seed,
            "max_tokens": self.tokens,
            "speculative": speculative,
            "cache_prompt": cache_prompt,
        }

    def seeded(self, repetition: int) -> "Task":
        """The same for another repetition: each has seeds of its own."""
        return replace(self, seed=self.seed + 1000 * repetition)


class Author:
    """Makes tasks for models that share one vocabulary and chat template."""

    def __init__(self, model: Path) -> None:
        self._model = Model(model, vocab_only=True)
        self._template = ChatTemplate(self._model.vocabulary.chat_template() or "")

    def task(
        self, name: str, messages: Sequence[dict[str, str]], *, temperature: float, seed: int, tokens: int
    ) -> Task:
        """A task whose prompt is rendered and tokenised here."""
        prompt = self._model.vocabulary.tokenize(self._template.render(messages))
        return Task(
            name=name,
            messages=tuple(messages),
            prompt=tuple(prompt),
            temperature=temperature,
            seed=seed,
            tokens=tokens,
        )

    def tasks(self, texts: dict[str, str], *, temperature: float, tokens: int) -> list[Task]:
        """One task per text, each a user's only message."""
        return [
            self.task(name, [{"role": "user", "content": text}], temperature=temperature, seed=seed, tokens=tokens)
            for seed, (name, text) in enumerate(texts.items())
        ]

    def length(self, text: str) -> int:
        """Tokens of a text."""
        return len(self._model.vocabulary.tokenize(text))

    def close(self) -> None:
        self._model.close()


def prompts(count: int) -> dict[str, str]:
    """The first `count` questions."""
    return dict(list(QUESTIONS.items())[:count])
