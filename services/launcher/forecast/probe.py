"""How often a draft model guesses what the target draws: the target answers without drafts, then the draft model reads
the answer.

Both sample with one seed, as in service, and the draft model always sees the target's own prefix. So one pass over the
finished answer gives every guess.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from services.launcher.forecast.forecast import Agreement
from shared.law import draws
from shared.law.sampling import Logits
from shared.model.rows import Rows
from shared.model.target import Target
from shared.wire.messages import Sampling

_GUESSES: Final = 3


def answer(
    target: Target,
    prompt: Sequence[int],
    law: Sampling,
    count: int,
    eog: Collection[int] = (),
    told: Callable[[], None] = lambda: None,
) -> list[int]:
    """The target's answer to `prompt`: up to `count` tokens, one per decode, without an end of generation.

    Calls `told` after every token. Leaves the sequence empty.
    """
    tokens: list[int] = []
    for _, token in drawn(target, prompt, law):
        if token in eog:
            break
        tokens.append(token)
        told()
        if len(tokens) == count:
            break
    target.truncate(0, 0)
    return tokens


def drawn(target: Target, prompt: Sequence[int], law: Sampling) -> Iterator[tuple[Logits, int]]:
    """The target's own tokens after `prompt`, one per decode and without an end, each after the logits of its draw.

    The first sequence must be empty; the logits are valid until the next token is taken.
    """
    logits = next(_read(target, prompt, 0, len(prompt) - 1))
    for offset in itertools.count():
        token = draws.draw(logits, law, None, None, offset).token
        yield logits, token
        logits = next(_read(target, [token], len(prompt) + offset, 0))


def agreement(draft: Target, prompt: Sequence[int], said: Sequence[int], law: Sampling, n_vocab: int) -> Agreement:
    """How often the draft model draws what the target `said` after `prompt`, with the same sampling and seed.

    `n_vocab` is the target's; ids beyond it are never guessed. Leaves the sequence empty.
    """
    found = Agreement(0, 0, 0, 0)
    if said:
        for offset, logits in enumerate(_read(draft, [*prompt, *said[:-1]], 0, len(prompt) - 1)):
            found += _judge(logits[:n_vocab], law, offset, said[offset])
    draft.truncate(0, 0)
    return found


def _judge(logits: Logits, law: Sampling, offset: int, token: int) -> Agreement:
    """Whether the draft's first, first two, first three guesses hold the token."""
    guesses = [guess for guess, _ in draws.ranked(logits, law, None, offset, _GUESSES)]
    return Agreement(1, *(token in guesses[: rank + 1] for rank in range(_GUESSES)))


def _read(target: Target, tokens: Sequence[int], position: int, first: int) -> Iterator[Logits]:
    """Decode `tokens` from `position` on; the logits from the `first` one on, each valid until the next is taken."""
    for start in range(0, len(tokens), target.max_rows):
        rows = Rows()
        for index, token in enumerate(tokens[start : start + target.max_rows], start=start):
            rows.add(token, position + index, (0,), index >= first)
        target.decode(rows)
        for row, output in enumerate(rows.outputs):
            if output:
                yield target.logits(row)
