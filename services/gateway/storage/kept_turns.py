"""The exact tokens of emitted tool calls, so that the next turn's prompt begins with what the target has cached."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from services.gateway.storage.shelf import Shelf
from shared.wire import keys
from shared.wire.commands import Redis

TTL_MS: Final = 3_600_000  # so long may a user take over one step of an agent
MAX_BYTES: Final = 32 << 20  # of all callers together
_LEAST: Final = 1 << 10  # what a turn counts at least, since Redis needs space for its name too


class KeptTurn(msgspec.Struct, frozen=True, array_like=True):
    """An assistant's turn that made calls: its tokens after the thinking, and the content that clients got."""

    tokens: tuple[int, ...]
    text: str
    calls: tuple[tuple[str, str], ...]  # name and arguments of each

    def tells(self, message: Mapping[str, Any]) -> bool:
        """Whether a client's message is this turn, unchanged but for spaces around the text and within the JSON."""
        functions = [call.get("function", {}) for call in message.get("tool_calls") or []]
        told = [(function.get("name"), _json(function.get("arguments"))) for function in functions]
        return told == [(name, _json(arguments)) for name, arguments in self.calls] and (
            str(message.get("content", "")).strip() == self.text.strip()
        )


def _json(text: object) -> object:
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text or "{}")
    except ValueError:
        return text


def behind(tokens: Sequence[int], piece: Callable[[int], bytes], mark: str) -> tuple[int, ...]:
    """The tokens after the last `mark` and the space after it: all tokens without a mark, none if a token spans the
    border."""
    pieces = [piece(token) for token in tokens]
    text = b"".join(pieces)
    found = text.rfind(mark.encode()) if mark else -1
    start = 0 if found < 0 else found + len(mark.encode())
    start += len(text[start:]) - len(text[start:].lstrip())
    for index, length in enumerate(map(len, pieces)):
        if start <= 0:
            return tuple(tokens[index:]) if start == 0 else ()
        start -= length
    return ()


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(KeptTurn)


class TurnStore:
    """Turns by the id of their first call. Losing one costs a little prefill, never correctness."""

    def __init__(self, redis: Redis, caller: str = "", *, max_bytes: int = MAX_BYTES) -> None:
        self._redis = redis
        self._caller = caller
        self._max_bytes = max_bytes
        self._shelf = Shelf(redis, "turns", max_bytes, _LEAST, TTL_MS)

    def of(self, caller: str) -> "TurnStore":
        return TurnStore(self._redis, caller, max_bytes=self._max_bytes)

    async def keep(self, call_id: str, turn: KeptTurn) -> None:
        """Remember a turn for an hour, or for less if its caller keeps many."""
        await self._shelf.put(self._caller, keys.turn(call_id), _encoder.encode(turn))

    async def find(self, call_ids: Sequence[str]) -> dict[str, KeptTurn]:
        """The turns that are still stored, by the same ids."""
        if not call_ids:
            return {}
        values = await self._redis.mget([keys.turn(call_id) for call_id in call_ids])
        found = {}
        for call_id, value in zip(call_ids, values, strict=True):
            if value is not None:
                with suppress(msgspec.MsgspecError):  # of another release, so it counts as forgotten
                    found[call_id] = _decoder.decode(value)
        return found
