"""What the clients ask, and what a plain loop over the same model answers."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.model.llama.model import Model
from shared.wire.messages import Sampling
from tests.e2e.plain import PlainLoop

N_CTX: Final = 256  # of a request: the longest prompt and answer take half of it
# The template of the default model puts this before a conversation without a system message.
_SYSTEM: Final = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
_TEXTS: Final = (
    "Tell me a story about a fox.",
    "Write a Python function that adds two numbers.",
    "Say the word banana ten times. banana banana banana",
    "List three colours and three animals, with emoji 🦊🎨.",
    "请用中文写一句话。",
    "Why is the sky blue? Answer like a pirate, in one long sentence.",
    "Count from one to thirty in words.",
    "Repeat: 🦊🇩🇪 漢字 naïve",
)


@dataclass(frozen=True, slots=True)
class Question:
    """A conversation of one message and how its answer is drawn."""

    text: str
    seed: int
    temperature: float
    max_tokens: int

    def body(self) -> dict[str, object]:
        """As a streaming chat request that tells token ids."""
        return {
            "messages": [{"role": "user", "content": self.text}],
            "seed": self.seed,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "stream": True,
            "return_token_ids": True,
        }


@dataclass(frozen=True, slots=True)
class Reference:
    """The right answer to a question."""

    tokens: tuple[int, ...]
    finish: str


def questions(count: int, seed: int) -> list[Question]:
    """So many questions, the same for the same seed."""
    source = random.Random(seed)
    return [
        Question(
            text=_TEXTS[index % len(_TEXTS)],
            seed=source.randrange(2**32),
            temperature=source.choice((0.0, 0.7, 1.0)),
            max_tokens=source.randint(8, 32),
        )
        for index in range(count)
    ]


def references(model: Path, asked: Sequence[Question]) -> list[Reference]:
    """What a plain llama-cpp-python loop says to each."""
    vocabulary = Model(model, vocab_only=True)
    loop = PlainLoop(model, N_CTX)
    found = []
    for question in asked:
        text = f"{_SYSTEM}<|im_start|>user\n{question.text}<|im_end|>\n<|im_start|>assistant\n"
        parameters = Sampling(seed=question.seed, temperature=question.temperature)
        tokens = loop.answer(vocabulary.vocabulary.tokenize(text), parameters, question.max_tokens).tokens
        found.append(Reference(tuple(tokens), "length" if len(tokens) == question.max_tokens else "stop"))
    loop.close()
    vocabulary.close()
    return found
