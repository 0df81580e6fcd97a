"""The durable plane as a plain Python model: what every call must answer, one request at a time. Knows no Redis."""

from dataclasses import dataclass, field

from shared.wire.messages import Finish
from shared.wire.scripts import MAX_SILENT, ScriptOutcome

Logged = tuple[int, tuple[int, ...], Finish]  # base, tokens, finish


@dataclass(slots=True)
class Request:
    """One submitted request; `owner` is whoever claimed it last."""

    exists: bool = True  # until its hash expires
    late: bool = False  # its deadline has passed
    state: str = "running"
    epoch: int = 0
    silent: set[int] = field(default_factory=set)  # claims since the last commit of which nothing was heard
    held: bool = False  # a lease is alive
    released: bool = False  # given back, and not claimed since
    owner: str = ""
    log: list[Logged] = field(default_factory=list)

    @property
    def committed(self) -> int:
        return sum(len(tokens) for _, tokens, _ in self.log)

    def _finish(self, state: str, finish: Finish, tokens: tuple[int, ...] = ()) -> None:
        self.log.append((self.committed, tokens, finish))
        self.state = state

    def expire(self) -> None:
        """Its deadline has passed, and somebody else is submitted."""
        if self.exists and self.state == "running":
            self._finish("finished", Finish.DEADLINE)

    def claim(self, owner: str) -> ScriptOutcome:
        if not self.exists:
            return ScriptOutcome.GONE
        if self.state != "running":
            return ScriptOutcome.FINISHED
        if self.late:
            self._finish("finished", Finish.DEADLINE)
            return ScriptOutcome.DEADLINE
        if self.held and self.owner != owner:
            return ScriptOutcome.HELD
        if self.held:
            self.silent.discard(self.epoch)
        elif len(self.silent) >= MAX_SILENT:
            self._finish("finished", Finish.ERROR)
            return ScriptOutcome.POISON
        self.epoch += 1
        self.silent.add(self.epoch)
        self.owner, self.held, self.released = owner, True, False
        return ScriptOutcome.OK

    def _fenced(self, epoch: int) -> ScriptOutcome | None:
        if not self.exists:
            return ScriptOutcome.GONE
        if self.epoch != epoch:
            self.silent.discard(epoch)
            return ScriptOutcome.STALE
        return None if self.state == "running" else ScriptOutcome(self.state)

    def commit(self, epoch: int, base: int, tokens: tuple[int, ...], finish: Finish) -> ScriptOutcome:
        refusal = self._fenced(epoch)
        if refusal is not None:
            return refusal
        if tokens and base + len(tokens) <= self.committed:
            return ScriptOutcome.DUPLICATE
        if base != self.committed:
            return ScriptOutcome.GAP
        self.held, self.released, self.silent = True, False, set()
        if finish is Finish.NONE:
            self.log.append((base, tokens, finish))
        else:
            self._finish("finished", finish, tokens)
        return ScriptOutcome.OK

    def renew(self, epoch: int) -> ScriptOutcome:
        refusal = self._fenced(epoch)
        if refusal is None:
            self.held, self.released = True, False
        return refusal or ScriptOutcome.OK

    def release(self, epoch: int) -> ScriptOutcome:
        refusal = self._fenced(epoch)
        if refusal is not None:
            return refusal
        if self.released:
            return ScriptOutcome.DUPLICATE
        self.held, self.released, self.silent = False, True, set()
        return ScriptOutcome.OK

    def cancel(self) -> ScriptOutcome:
        if not self.exists:
            return ScriptOutcome.GONE
        if self.state != "running":
            return ScriptOutcome(self.state)
        self._finish("cancelled", Finish.CANCELLED)
        return ScriptOutcome.OK


def answer(request_id: str, start: int, size: int) -> tuple[int, ...]:
    """The reference: what follows the first `start` tokens of the only answer that this request has."""
    return tuple((7 * int(request_id[1:]) + 3 * offset) % 50 + 2 for offset in range(start, start + size))


def assert_sound(request_id: str, log: list[Logged], state: str) -> None:
    """A log is a prefix of the only answer, without gaps, with one terminal chunk, at the end, if it has ended."""
    tokens = tuple(token for _, part, _ in log for token in part)
    assert tokens == answer(request_id, 0, len(tokens))
    assert [base for base, _, _ in log] == [sum(len(part) for _, part, _ in log[:index]) for index in range(len(log))]
    ends = [finish is not Finish.NONE for _, _, finish in log]
    assert ends == [False] * (len(log) - 1) + [state != "running"] if log else state == "running"
