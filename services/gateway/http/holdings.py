"""What a request holds until its answer has ended, and who releases it."""

from contextlib import AbstractAsyncContextManager, AsyncExitStack


class Holdings(AsyncExitStack):
    """A request's place, account, attempt and jobs. Exactly one owner releases them, the last one first.

    The handler owns them from `async with` on, and releases them at its end unless it has handed them over.
    """

    _handed_over = False

    def hand_over(self) -> AbstractAsyncContextManager[object]:
        """Give everything to a new owner, who releases it by leaving the returned context.

        From then on these holdings release nothing. Raises `RuntimeError` if they were handed over before.
        """
        if self._handed_over:
            raise RuntimeError("these holdings have another owner")
        self._handed_over = True
        return self.pop_all()
