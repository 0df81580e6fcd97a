"""Which tokens an answer has so far, as the penalties of the law count them."""

from array import array
from collections.abc import Mapping, Sequence
from typing import Any


class History:
    """Token counts for penalties. Push a token on the way down a path, pop it on the way back.

    The arrays say the same to native code, at no cost for a draw: `prompt` has the different ids of the prompt,
    ascending; `ids` those of the output, in no order, with their `counts`; `fresh` is 1 where one is not in the prompt.
    """

    __slots__ = ("_in_prompt", "_places", "counts", "fresh", "ids", "prompt")

    def __init__(self, prompt: Sequence[int] = (), output: Sequence[int] = ()) -> None:
        self._in_prompt = frozenset(prompt)
        self._places: dict[int, int] = {}  # of the output's ids in the arrays
        self.prompt = array("i", sorted(self._in_prompt))
        self.ids = array("i")
        self.counts = array("f")
        self.fresh = array("B")
        for token in output:
            self.push(token)

    def push(self, token: int) -> None:
        place = self._places.setdefault(token, len(self.ids))
        if place < len(self.ids):
            self.counts[place] += 1
        else:
            self.ids.append(token)
            self.counts.append(1)
            self.fresh.append(token not in self._in_prompt)

    def pop(self, token: int) -> None:
        place = self._places[token]
        self.counts[place] -= 1
        if self.counts[place]:
            return
        del self._places[token]
        arrays: tuple[array[Any], ...] = (self.ids, self.counts, self.fresh)
        for values in arrays:
            last = values.pop()
            if place < len(values):
                values[place] = last
        if place < len(self.ids):
            self._places[self.ids[place]] = place

    @property
    def output(self) -> Mapping[int, int]:
        return dict(zip(self.ids, map(int, self.counts), strict=True))

    @property
    def seen(self) -> frozenset[int]:
        return self._in_prompt.union(self.ids)
