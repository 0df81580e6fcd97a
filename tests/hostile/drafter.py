"""A drafter that turned on its fleet: every command that its Redis user may send, on every key that it may reach.

`ATTACKS` has arguments for each command; a right without an attack is an error, so a new right needs one.
"""

import fnmatch
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from shared.wire import codec, keys
from shared.wire.messages import DrafterCard, Proposal

Words = tuple[str | bytes | int, ...]
_LAST: Final = f"{2**64 - 1}-{2**64 - 1}"
_BIG: Final = b"x" * (1 << 20)


@dataclass(frozen=True, slots=True)
class Place:
    """What the drafter knows of the fleet, and its own id."""

    drafter: str
    verifier: str
    request: str
    card: DrafterCard

    def keys(self, pattern: str) -> list[str]:
        """Keys of this fleet, and of the drafter's own invention, that a pattern of its rights reaches."""
        ids = (self.drafter, f"{self.drafter}-invented")
        known = [
            keys.job(self.request),
            keys.log(self.request),
            keys.cards(),
            keys.drafters(),
            keys.card(self.verifier),
        ]
        for name in ids:
            known += [keys.card(name), keys.inbox(name), keys.draft_vocabulary(name, "d")]
            known += [keys.outbox(name, verifier) for verifier in (self.verifier, "verifier-invented")]
        # In a pattern of Redis only the star is special here; a request's braces are not.
        return [key for key in known if fnmatch.fnmatchcase(key, pattern.replace("[", "[[]"))]

    def forged(self) -> Iterator[bytes]:
        """Proposals that lie about everything."""
        for index in range(40):
            yield codec.encode(
                Proposal(
                    request_id=self.request, epoch=1, base=index % 5, prefix_hash=index, tokens=(index,) * 256,
                    scores=(1.0,) * 256, drafter=("another", self.drafter)[index % 2], step_us=1 << 40, batch=1 << 40,
                    copied=256,
                )
            )  # fmt: skip


ATTACKS: Final[dict[str, Callable[[Place, str], list[Words]]]] = {
    "ping": lambda place, key: [(b"x" * 1000,)],
    "select": lambda place, key: [(0,)],
    "client|setinfo": lambda place, key: [("LIB-NAME", "x")],
    "client|setname": lambda place, key: [("x" * 1000,)],
    "multi": lambda place, key: [()],
    "exec": lambda place, key: [()],
    "discard": lambda place, key: [()],
    "hget": lambda place, key: [(key, "payload"), (key, "state")],
    "xrange": lambda place, key: [(key, "-", "+")],
    "smembers": lambda place, key: [(key,)],
    "srandmember": lambda place, key: [(key, -10_000), (key, 10_000)],
    "getrange": lambda place, key: [(key, 0, -1)],
    "sadd": lambda place, key: [
        (key, *(f"drafter-{index}" for index in range(3000))),
        (key, b"x" * 100_000, b"\xff\xfe", b"", place.verifier, place.drafter),
    ],
    "set": lambda place, key: [
        (key, b""), (key, _BIG), (key, codec.encode(place.card)[:-3]), (key, codec.encode(place.card)),
    ],
    "pexpire": lambda place, key: [(key, 0), (key, 1), (key, 1 << 50)],
    "xadd": lambda place, key: [
        *((key, "*", "m", forged) for forged in place.forged()),
        *((key, "*", "m", _BIG) for _ in range(4)),
        (key, "*", *(word for index in range(500) for word in (index, "x"))),
        (key, "MAXLEN", 0, "*", "m", "x"),
        (key, _LAST, "m", "x"),
    ],
    "xread": lambda place, key: [("STREAMS", key, "0")],
    "del": lambda place, key: [(key,)],
}  # fmt: skip


def commands(place: Place, rules: list[tuple[list[str], list[str]]]) -> Iterator[Words]:
    """Every attack. `rules` are the drafter's rights: commands with the patterns of keys that they reach."""
    for allowed, patterns in rules:
        for command in allowed:
            for key in [key for pattern in patterns for key in place.keys(pattern)] or [""]:
                for arguments in ATTACKS[command](place, key):
                    yield (*command.upper().split("|"), *arguments)
