"""Which of their slot's tokens the spare sequences hold: they stay between decodes, so that only new tokens are copied.

A spare shares the cells of its slot's tokens, so it takes none of its own. But a cell is free only once no sequence has
it, so `Sequences` cuts the spares whenever it cuts their slot. All methods run in the thread that owns the target.
"""

from collections.abc import Iterable

from shared.model.target import Target


class Leaves:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._held: dict[int, int] = {}  # tokens by spare; one that is not here is empty

    def grow(self, slot: int, spares: Iterable[int], length: int) -> None:
        """Make the spares hold the first `length` tokens of their slot."""
        for spare in spares:
            held = self._held.get(spare, 0)
            if held < length:
                self._held[spare] = self._target.copy(slot, spare, length, held)

    def decoded(self, spare: int, length: int) -> None:
        """A decode made the spare hold `length` tokens. The slot's are at most those that `cut` leaves."""
        self._held[spare] = length

    def cut(self, spares: Iterable[int], length: int) -> None:
        """Forget the spares' tokens from `length` on."""
        for spare in spares:
            if self._held.get(spare, 0) > length:
                self._held[spare] = self._target.truncate(spare, length)

    def clear(self) -> None:
        """The target has forgotten all sequences."""
        self._held.clear()
