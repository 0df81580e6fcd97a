"""The durable plane as a plain Python model: what every call must answer, one request at a time. Knows no Redis."""

from dataclasses import dataclass, field

from shared.wire.messages import Finish
from shared.wire.scripts import MAX_SILENT, Outcome

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

    def claim(self, owner: str) -> Outcome:
        if not self.exists:
            return Outcome.GONE
        if self.state != "running":
            return Outcome.FINISHED
        if self.late:
            self._finish("finished", Finish.DEADLINE)
            return Outcome.DEADLINE
        if self.held and self.owner != owner:
            return Outcome.HELD
        if self.held:
            self.silent.discard(self.epoch)
        elif len(self.silent) >= MAX_SILENT:
            self._finish("finished", Finish.ERROR)
            return Outcome.POISON
        self.epoch += 1
        self.silent.add(self.epoch)
        self.owner, self.held, self.released = owner, True, False
        return Outcome.OK

    def _fenced(self, epoch: int) -> Outcome | None:
        if not self.exists:
            return Outcome.GONE
        if self.epoch != epoch:
            self.silent.discard(epoch)
            return Outcome.STALE
        return None if self.state == "running" else Outcome(self.state)

    def commit(self, epoch: int, base: int, tokens: tuple[int, ...], finish: Finish) -> Outcome:
        refusal = self._fenced(epoch)
        if refusal is not None:
            return refusal
        if tokens and base + len(tokens) <= self.committed:
            return Outcome.DUPLICATE
        if base != self.committed:
            return Outcome.GAP
        self.held, self.released, self.silent = True, False, set()
        if finish is Finish.NONE:
            self.log.append((base, tokens, finish))
        else:
            self._finish("finished", finish, tokens)
        return Outcome.OK

    def renew(self, epoch: int) -> Outcome:
        refusal = self._fenced(epoch)
        if refusal is None:
            self.held, self.released = True, False
        return refusal or Outcome.OK

    def release(self, epoch: int) -> Outcome:
        refusal = self._fenced(epoch)
        if refusal is not None:
            return refusal
        if self.released:
            return Outcome.DUPLICATE
        self.held, self.released, self.silent = False, True, set()
        return Outcome.OK

    def cancel(self) -> Outcome:
        if not self.exists:
            return Outcome.GONE
        if self.state != "running":
            return Outcome(self.state)
        self._finish("cancelled", Finish.CANCELLED)
        return Outcome.OK


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
