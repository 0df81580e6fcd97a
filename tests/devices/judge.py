"""Whether tokens are those that a target draws, to the bit or but for noise."""

from collections.abc import Sequence

from shared.law import sampling
from shared.wire.messages import Sampling
from tests.devices.far import FarTarget, Run


def shortfalls(target: FarTarget, prompt: Sequence[int], answer: Sequence[int], parameters: Sampling) -> list[float]:
    """By how many logits each token of the answer was behind the target's own draw after the same text; 0.0: it is it.

    The answer is read in one decode behind the prompt's.
    """
    target.forget()
    if len(prompt) > 1:
        target.decode(Run(0, 0, prompt[:-1]))
    read = [prompt[-1], *answer[:-1]]
    found = []
    for offset, (logits, token) in enumerate(zip(target.decode(Run(0, len(prompt) - 1, read)), answer, strict=True)):
        scores = sampling.ranked(logits, parameters, None, offset, logits.size)
        behind = scores[0][1] - dict(scores)[token]
        found.append(behind if sampling.is_greedy(parameters) else behind * parameters.temperature)
    target.forget()
    return found
