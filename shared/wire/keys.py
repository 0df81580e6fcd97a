"""Every Redis key, in one place. Every writer gives its keys a TTL."""

from typing import Final

PREFIX: Final = "draftmesh"
GROUP: Final = "verifiers"  # the consumer group on every job stream
OF_MACHINE: Final = "@"  # in a drafter's id, after the name of its machine's Redis user
OF_DRAFTERS: Final = f"{PREFIX}:*:drafter-*"  # a pattern of all keys that drafters own, and of few others


def job(request_id: str) -> str:
    """Hash: payload, epoch, owner, lease, committed, silent, state, deadline, entry, reader, share."""
    return f"{PREFIX}:{{{request_id}}}:job"


def log(request_id: str) -> str:
    """Stream: the committed chunks; entry id `<end offset>-1`, or `-2` for a terminal chunk without tokens."""
    return f"{PREFIX}:{{{request_id}}}:log"


def jobs(model: str) -> str:
    """Stream: request ids that a verifier of this model holds or may take next: the first of each caller's lane."""
    return f"{PREFIX}:jobs:{model}"


def admitted(model: str) -> str:
    """Sorted set: live request ids scored by deadline; the admission semaphore."""
    return f"{PREFIX}:admitted:{model}"


def lanes(model: str) -> str:
    """Sorted set, all scores 0: "<caller> <microseconds> <request id>" of every job that no verifier has taken yet."""
    return f"{PREFIX}:lanes:{model}"


def shares(model: str) -> str:
    """Hash: live request ids with "<tokens> <caller> <microseconds>": their caller, time and size."""
    return f"{PREFIX}:shares:{model}"


def dead(model: str) -> str:
    """Stream: jobs of this model that were given up after several verifiers failed on them, for people to inspect."""
    return f"{PREFIX}:dead:{model}"


def inbox(instance: str) -> str:
    """Stream: hints for one drafter, which makes it and renews it; the verifiers write."""
    return f"{PREFIX}:inbox:{instance}"


def outbox(drafter: str, verifier: str) -> str:
    """Stream: one drafter's proposals for one verifier, which trims what it has read."""
    return f"{PREFIX}:outbox:{drafter}:{verifier}"


def wake(instance: str) -> str:
    """Stream: wakes one gateway's follower when a request joins."""
    return f"{PREFIX}:wake:{instance}"


def card(instance: str) -> str:
    """String: one process's card, expiring when its heartbeat stops."""
    return f"{PREFIX}:card:{instance}"


def cards() -> str:
    """Set: ids of the gateways and verifiers that registered."""
    return f"{PREFIX}:cards"


def drafters() -> str:
    """Set: ids of the drafters that registered. A drafter may add any text, so readers bound and clear it."""
    return f"{PREFIX}:drafters"


def served(name: str) -> str:
    """String: the model that was last served under this name; its TTL gives its age."""
    return f"{PREFIX}:served:{name}"


def turn(call_id: str) -> str:
    """String: the tokens of an assistant's turn that made tool calls, by the id of the first one."""
    return f"{PREFIX}:turn:{call_id}"


def response(caller: str, response_id: str) -> str:
    """String: a stored response with its conversation. A digest of the key identifies the caller."""
    return f"{PREFIX}:response:{caller}:{response_id}"


def attempt(digest: str) -> str:
    """String: which request holds an idempotency key, by a digest of the key and its caller."""
    return f"{PREFIX}:attempt:{digest}"


def allowance(caller: str) -> str:
    """Hash: what a caller has left to send, `requests` and `bytes`, as of `at` in seconds."""
    return f"{PREFIX}:allowance:{caller}"


def shelf(kind: str) -> str:
    """Sorted set: all stored values of a kind, `responses` or `turns`, as "<bytes> <caller> <key>" by when they expire
    in microseconds."""
    return f"{PREFIX}:shelf:{kind}"


def shelf_of(kind: str, caller: str) -> str:
    """Sorted set: the same of one caller."""
    return f"{PREFIX}:shelf:{kind}:{caller}"


def shelf_held(kind: str) -> str:
    """Sorted set: callers by the bytes of this kind that they have stored; `*` has the bytes of all."""
    return f"{PREFIX}:shelf-held:{kind}"


def record(caller: str, response_id: str) -> str:
    """Stream: the events of a background response; the entry id is the sequence number plus one."""
    return f"{PREFIX}:record:{caller}:{response_id}"


def records() -> str:
    """Sorted set: the keys of the records, scored by when they expire in milliseconds."""
    return f"{PREFIX}:records"


def record_sizes() -> str:
    """Hash: the bytes of each record by its key, of each caller by the beginning of its records' keys, and `total`."""
    return f"{PREFIX}:record-sizes"


def recording() -> str:
    """Hash: the keys of the records that still grow, with the gateway that writes them."""
    return f"{PREFIX}:recording"


def vocabulary(digest: str) -> str:
    """String: a target's deflated vocabulary-only GGUF, addressed by its content."""
    return f"{PREFIX}:vocabulary:{digest}"


def draft_vocabulary(drafter: str, digest: str) -> str:
    """String: the deflated texts of one drafter's tokens, addressed by their content."""
    return f"{PREFIX}:draft-vocabulary:{drafter}:{digest}"
