"""What a request holds until its answer has ended, and who releases it."""

from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")


class Holdings:
    """A request's place, account, attempt and jobs, which exactly one owner releases, the last one first.

    The handler owns them from `async with` on, and releases them at its end unless it has handed them over.
    """

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._handed_over = False

    def enter(self, one: AbstractContextManager[T]) -> T:
        """Hold one more."""
        return self._stack.enter_context(one)

    async def enter_async(self, one: AbstractAsyncContextManager[T]) -> T:
        """Hold one more."""
        return await self._stack.enter_async_context(one)

    def hand_over(self) -> AbstractAsyncContextManager[object]:
        """All of it, for a new owner, who releases it by leaving it: from here on this one holds and releases nothing.

        Raises `RuntimeError` if it was handed over before.
        """
        if self._handed_over:
            raise RuntimeError("these holdings have another owner")
        self._handed_over = True
        return self._stack.pop_all()

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)
