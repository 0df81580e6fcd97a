"""The rights of each service in Redis, no more than it needs, as access rules of Redis 7 and Valkey.

A user has its own rule and any number of selectors, and a command passes if one of them allows it with all its keys. So
a right to write one kind of key says nothing about another, and the commands of a script are checked like any others. A
service's own keys begin with the name of the service.

A machine that drafts has a user of its own, `drafter-<machine>`, which can be removed alone. Its keys begin with that
name, and it can change no others.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shared.errors import StartError
from shared.wire import keys

SERVICES: Final = ("gateway", "verifier", "drafter", "operator", "scaler", "admin")
_ANY: Final = "*"


@dataclass(frozen=True, slots=True)
class Selector:
    """Commands, and the keys with which they may be used: `read`, `write`, or `both`."""

    commands: str
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    both: tuple[str, ...] = ()

    def rule(self) -> str:
        """The rule in the server's syntax."""
        words = [f"+{command}" for command in self.commands.split()]
        words += [f"%R~{key}" for key in self.read]
        words += [f"%W~{key}" for key in self.write]
        words += [f"~{key}" for key in self.both]
        return " ".join(words)


# The scripts of `shared.wire.scripts` use these keys of a request together.
_QUEUES: Final = (keys.admitted(_ANY), keys.jobs(_ANY), keys.lanes(_ANY), keys.shares(_ANY))
_REQUEST: Final = (keys.job(_ANY), keys.log(_ANY), *_QUEUES)
_SCRIPT: Final = (
    "evalsha eval script|load time exists hmget hget hset hdel hincrby xadd xrange xack xdel zadd zrem zrangebylex"
    " pexpire pttl"
)
_SESSION: Final = "ping select client|setinfo client|setname multi exec discard"
# Everything that a drafter may write.
_OF_DRAFTERS: Final = (
    *(keys.card("drafter-*"), keys.inbox("drafter-*"), keys.outbox("drafter-*", _ANY)),
    keys.draft_vocabulary("drafter-*", _ANY),
)
_LOOKING: Final = (
    Selector("smembers", read=(keys.cards(),)),
    Selector("srandmember", read=(keys.drafters(),)),
    Selector("getrange", read=(keys.card(_ANY),)),
)


def _member(service: str) -> tuple[Selector, ...]:
    """The registry: read all cards, write its own, and tidy the lists."""
    return (
        *_LOOKING,
        Selector("sadd srem pexpire", write=(keys.cards(),)),
        Selector("srem del", write=(keys.drafters(),)),
        Selector("set", write=(keys.card(f"{service}-*"),)),
        Selector("del", write=(keys.card(f"{service}-*"), keys.inbox(f"{service}-*"))),
    )


def _drafter(name: str) -> tuple[Selector, ...]:
    """A drafter whose id is like `name`: it reads every request, and writes nothing but what is its own."""
    own = (keys.inbox(name), keys.outbox(name, "verifier-*"))
    return (
        Selector(f"{_SESSION} hget", read=(keys.job(_ANY),)),
        Selector("xrange", read=(keys.log(_ANY),)),
        *_LOOKING,
        Selector("sadd pexpire", write=(keys.drafters(),)),
        Selector("set", write=(keys.card(name), keys.draft_vocabulary(name, _ANY))),
        Selector("pexpire", write=(*own, keys.draft_vocabulary(name, _ANY))),
        Selector("xadd", write=own),
        Selector("xread", read=(keys.inbox(name),)),
        Selector("del", write=(keys.card(name), keys.inbox(name))),
    )


RULES: Final[Mapping[str, tuple[Selector, ...]]] = {
    "gateway": (
        Selector(f"{_SESSION} {_SCRIPT} hvals zcard zrange zrangebyscore info", both=_REQUEST),
        Selector("xread", read=(keys.log(_ANY), keys.wake("gateway-*"), keys.record(_ANY, _ANY))),
        Selector("xadd pexpire", write=(keys.wake("gateway-*"),)),
        Selector("getrange", read=(keys.vocabulary(_ANY),)),
        Selector("get pttl", read=(keys.served(_ANY),)),
        Selector("mget", read=(keys.turn(_ANY),)),
        Selector("get", read=(keys.response(_ANY, _ANY),)),
        Selector("evalsha eval get set del", both=(keys.attempt(_ANY),)),
        Selector("evalsha eval time hmget hset pexpire", both=(keys.allowance(_ANY),)),
        Selector(
            "evalsha eval time set strlen del exists zadd zrem zincrby zscore zrange zrangebyscore"
            " zrevrange zrevrangebyscore pexpire",
            both=(
                *(keys.response(_ANY, _ANY), keys.turn(_ANY)),
                *(keys.shelf(_ANY), keys.shelf_of(_ANY, _ANY), keys.shelf_held(_ANY)),
            ),
        ),
        Selector(
            "evalsha eval exists xadd xrange xrevrange del pttl pexpire hget hset hdel hincrby hgetall"
            " zadd zrem zrange zrangebyscore",
            both=(keys.record(_ANY, _ANY), keys.records(), keys.record_sizes(), keys.recording()),
        ),
        Selector("pttl", read=(keys.card("gateway-*"),)),
        *_member("gateway"),
    ),
    "verifier": (
        Selector(
            f"{_SESSION} {_SCRIPT} hkeys xreadgroup xautoclaim xgroup|create xinfo|groups xpending zrange",
            both=(*_REQUEST, keys.dead(_ANY)),
        ),
        Selector("pttl", read=(keys.card("gateway-*"),)),
        Selector("xread", read=(keys.outbox("drafter-*", "verifier-*"),)),
        Selector("xtrim pexpire del", write=(keys.outbox("drafter-*", "verifier-*"),)),
        Selector("xadd", write=(keys.inbox("drafter-*"),)),
        Selector("set pexpire", write=(keys.vocabulary(_ANY),)),
        Selector("set", write=(keys.served(_ANY),)),
        Selector("getrange", read=(keys.draft_vocabulary("drafter-*", _ANY),)),
        # To find drafters that fill the memory, and to delete what they wrote.
        Selector("scan info"),
        Selector("memory|usage", read=_OF_DRAFTERS),
        Selector("unlink", write=_OF_DRAFTERS),
        *_member("verifier"),
    ),
    "drafter": _drafter("drafter-*"),
    # `draftmesh status` and `plan --redis`: they may only see which processes there are.
    "operator": (Selector(_SESSION), *_LOOKING),
    # KEDA scales by the number of requests.
    "scaler": (
        Selector(f"{_SESSION} hello evalsha eval type zcard llen", both=(keys.admitted(_ANY), keys.lanes(_ANY))),
    ),
    # Whoever runs the server: what the runbooks say, and whatever else an incident asks for.
    "admin": (Selector("@all", both=(_ANY,)),),
}

_MACHINE: Final = re.compile(r"drafter-[a-z0-9][a-z0-9-]{0,31}")


def machine_user(machine: str) -> str:
    """The name of the user of a machine that drafts. Raises `StartError` for a name that no user may have."""
    name = f"drafter-{machine}"
    if not _MACHINE.fullmatch(name):
        raise StartError("NAME", machine, "1 to 32 small letters, digits and -, such as laptop")
    return name


def rights(name: str) -> tuple[Selector, ...]:
    """What the user of a service or a machine may do."""
    return RULES[name] if name in RULES else _drafter(f"{name}{keys.OF_MACHINE}*")


def user(name: str, password_digest: str) -> str:
    """The line of an ACL file for a service or a machine's user; `password_digest` is a SHA-256 in hexadecimal."""
    return " ".join(("user", name, *words(name, password_digest)))


def words(name: str, password_digest: str) -> list[str]:
    """What `ACL SETUSER` takes after the name."""
    first, *others = (selector.rule() for selector in rights(name))
    selectors = [f"({rule})" for rule in others]
    return ["on", f"#{password_digest}", "resetkeys", "resetchannels", "-@all", *first.split(), *selectors]


# Without a password a client may only ping the server, as health checks do.
ANYONE: Final = "user default on nopass resetkeys resetchannels -@all +ping"
