"""The scripts against a plain model, call by call: whatever order verifiers, gateways and lost replies come in.

Hypothesis chooses the calls. Two verifiers keep every claim that they ever got and go on using it, as zombies do; any
call may be sent twice, as a client does whose reply was lost, and old commits come again at any time. Leases and
deadlines end when a rule says so, by moving the moment that the job's hash holds.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast

import fakeredis
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from shared.wire import keys
from shared.wire.broker import Broker, connect
from shared.wire.jobs import Admission, Append, Claim, JobStore, Renewal
from shared.wire.messages import Chunk, Finish
from shared.wire.reading import read_log
from shared.wire.scripts import ScriptOutcome
from tests.contract.job_model import Logged, Request, answer, assert_sound
from tests.examples import few
from tests.toys import job

MODEL = "toy"
LIMIT = 5
CALLER_LIMIT = 4
CALLERS = st.sampled_from(["", "a", "b"])
OWNERS = ("v0", "v1")
FINISHES = st.sampled_from([Finish.NONE, Finish.NONE, Finish.NONE, Finish.STOP, Finish.LENGTH])
T = TypeVar("T")


@dataclass(slots=True)
class Held:
    """A claim as its verifier sees it, rightly or not: `base` is how far it believes the log to reach."""

    request_id: str
    epoch: int
    base: int


@dataclass(slots=True)
class Verifier:
    store: JobStore
    owner: str
    entries: dict[str, int] = field(default_factory=dict)  # what was delivered to it and not yet claimed


@dataclass(slots=True)
class World:
    """A server and the loop that its clients belong to."""

    loop: asyncio.AbstractEventLoop
    broker: Broker

    def do(self, work: Awaitable[T]) -> T:
        return self.loop.run_until_complete(work)


class Machine(RuleBasedStateMachine):
    claims: "Bundle[Held]" = Bundle("claims")
    sent: "Bundle[Append]" = Bundle("sent")

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.raw = cast(Any, world.broker.redis)
        self.gateway = self.store()
        self.verifiers = [Verifier(self.store(), owner) for owner in OWNERS]
        self.requests: dict[str, Request] = {}
        self.entries: dict[str, int] = {}  # the stream entry of each request, by the order in which they were added
        self.count = 0
        self.waiting: dict[int, str] = {}
        self.delivered: dict[int, str] = {}
        self.admitted: dict[str, str] = {}  # with their callers
        self.lanes: dict[str, list[str]] = {"": [], "a": [], "b": []}  # who was never claimed, by caller
        self.epochs: dict[str, int] = {}

    def store(self) -> JobStore:
        return JobStore(self.world.broker.redis, self.world.broker.blocking, MODEL, lease_ms=3_600_000)

    @initialize()
    def empty(self) -> None:
        self.world.do(self.raw.flushall())
        self.world.do(self.gateway.ensure_group())

    # ------------------------------------------------------------ helpers

    def call(self, twice: bool, send: Callable[[], Awaitable[T]], expect: Callable[[], T]) -> T:
        """Send once or, the reply being lost, twice; every reply is what the model says."""
        for _ in range(1 + twice):
            got = self.world.do(send())
            assert got == expect()
        return got

    def queue(self, request_id: str) -> None:
        self.count += 1
        self.entries[request_id] = self.count
        self.waiting[self.count] = request_id

    def unqueue(self, entry: int) -> None:
        self.waiting.pop(entry, None)
        self.delivered.pop(entry, None)

    def advance(self, caller: str) -> None:
        """The first of a lane is queued, whoever was before it."""
        lane = self.lanes[caller]
        while lane and not self.requests[lane[0]].exists:
            lane.pop(0)
        if lane and lane[0] not in self.entries:
            self.queue(lane[0])

    def depart(self, request_id: str) -> None:
        caller = self.admitted.get(request_id, "")
        if request_id in self.lanes[caller]:
            self.lanes[caller].remove(request_id)
            self.advance(caller)

    def leave(self, request_id: str) -> None:
        self.depart(request_id)
        self.admitted.pop(request_id, None)

    def sweep(self) -> None:
        """What ended is neither queued nor admitted."""
        for request_id, request in self.requests.items():
            if request.exists and request.state != "running":
                self.unqueue(self.entries.get(request_id, 0))
                self.leave(request_id)

    def pick(self, number: int) -> str:
        return f"r{number % len(self.requests)}"

    # ------------------------------------------------------------ gateway

    @rule(twice=st.booleans(), caller=CALLERS)
    def submit(self, twice: bool, caller: str) -> None:
        request_id = f"r{len(self.requests)}"

        def expect() -> ScriptOutcome:
            if request_id in self.requests:
                return ScriptOutcome.DUPLICATE
            for late in sorted(name for name in self.admitted if self.requests[name].late):
                self.requests[late].expire()
                self.unqueue(self.entries.get(late, 0))
                self.leave(late)
            if list(self.admitted.values()).count(caller) >= CALLER_LIMIT:
                return ScriptOutcome.OVER
            if len(self.admitted) >= LIMIT:
                return ScriptOutcome.FULL
            self.requests[request_id] = Request()
            self.admitted[request_id] = caller
            self.lanes[caller].append(request_id)
            self.advance(caller)
            return ScriptOutcome.OK

        admission = Admission(caller=caller, limit=CALLER_LIMIT)
        self.call(twice, lambda: self.gateway.submit(job(request_id), LIMIT, admission=admission), expect)

    @precondition(lambda self: self.requests)
    @rule(number=st.integers(0, 30), twice=st.booleans())
    def cancel(self, number: int, twice: bool) -> None:
        request_id = self.pick(number)
        self.call(twice, lambda: self.gateway.cancel(request_id), self.requests[request_id].cancel)
        self.sweep()

    # ------------------------------------------------------------ verifiers

    @precondition(lambda self: self.waiting)
    @rule(index=st.integers(0, 1), lost=st.booleans())
    def deliver(self, index: int, lost: bool) -> None:
        """A reply that is lost here leaves the entry delivered to somebody who does not know."""
        verifier = self.verifiers[index]
        entry, request_id = next(iter(self.waiting.items()))
        store = self.store() if lost else verifier.store
        assert self.world.do(store.next_job(verifier.owner, 1)) == request_id
        self.delivered[entry] = self.waiting.pop(entry)
        if not lost:
            verifier.entries[request_id] = entry

    @rule(index=st.integers(0, 1))
    def look_for_orphans(self, index: int) -> None:
        verifier = self.verifiers[index]
        expected = [self.delivered[entry] for entry in sorted(self.delivered)]
        assert self.world.do(verifier.store.orphans(verifier.owner)) == expected
        verifier.entries |= {self.delivered[entry]: entry for entry in sorted(self.delivered)}

    @precondition(lambda self: self.requests)
    @rule(target=claims, index=st.integers(0, 1), number=st.integers(0, 30), twice=st.booleans())
    def claim(self, index: int, number: int, twice: bool) -> Any:
        verifier, request_id = self.verifiers[index], self.pick(number)
        request = self.requests[request_id]
        for _ in range(1 + twice):
            got = self.world.do(verifier.store.claim(request_id, verifier.owner))
            expected = request.claim(verifier.owner)
            entry = verifier.entries.pop(request_id, None)
            if expected is ScriptOutcome.GONE:
                self.unqueue(entry or 0)
                self.leave(request_id)
            elif expected is ScriptOutcome.OK:
                if request_id not in self.entries:
                    self.queue(request_id)  # claimed without a delivery, but somebody may have to find it
                self.depart(request_id)
            self.sweep()
            if not isinstance(got, Claim):
                assert got is expected
        if not isinstance(got, Claim):
            return multiple()
        assert (expected, got.epoch, got.committed) == (ScriptOutcome.OK, request.epoch, request.committed)
        assert got.job == job(request_id)
        return Held(request_id, got.epoch, got.committed)

    @rule(target=sent, held=claims, size=st.integers(0, 3), skip=st.sampled_from([0, 0, 0, 1]), finish=FINISHES,
          twice=st.booleans())  # fmt: skip
    def commit(self, held: Held, size: int, skip: int, finish: Finish, twice: bool) -> Any:
        """`skip`: a verifier that lost a commit of its own, which no other call may cover up."""
        if not size and finish is Finish.NONE:
            return multiple()
        base = held.base + skip
        chunk = Chunk(tokens=answer(held.request_id, base, size), finish=finish)
        append = Append(request_id=held.request_id, epoch=held.epoch, base=base, chunk=chunk)
        if self.send(append, twice) in (ScriptOutcome.OK, ScriptOutcome.DUPLICATE):
            held.base = base + size
        return append

    @rule(append=sent)
    def send_again(self, append: Append) -> None:
        """A packet that the network kept until now."""
        self.send(append, False)

    def send(self, append: Append, twice: bool) -> ScriptOutcome:
        request, store = self.requests[append.request_id], self.verifiers[0].store
        chunk = append.chunk
        [outcome] = self.call(
            twice,
            lambda: store.commit([append]),
            lambda: [request.commit(append.epoch, append.base, chunk.tokens, chunk.finish)],
        )
        self.sweep()
        return outcome

    @rule(held=claims, twice=st.booleans())
    def renew(self, held: Held, twice: bool) -> None:
        request, store = self.requests[held.request_id], self.verifiers[0].store
        renewal = Renewal(held.request_id, held.epoch)
        self.call(twice, lambda: store.commit([], [renewal]), lambda: [request.renew(held.epoch)])

    @rule(held=consumes(claims), twice=st.booleans())
    def release(self, held: Held, twice: bool) -> None:
        request, store = self.requests[held.request_id], self.verifiers[0].store
        for _ in range(1 + twice):
            expected = request.release(held.epoch)
            assert self.world.do(store.release(held.request_id, held.epoch)) is expected
            if expected is ScriptOutcome.OK:
                self.unqueue(self.entries[held.request_id])
                self.queue(held.request_id)

    # ------------------------------------------------------------ time

    def running(self, number: int) -> str:
        request_id = self.pick(number)
        request = self.requests[request_id]
        return request_id if request.exists and request.state == "running" else ""

    @precondition(lambda self: self.requests)
    @rule(number=st.integers(0, 30))
    def lease_ends(self, number: int) -> None:
        request_id = self.running(number)
        if request_id and self.requests[request_id].held:
            self.world.do(self.raw.hset(keys.job(request_id), "lease", 1))
            self.requests[request_id].held = False

    @precondition(lambda self: self.requests)
    @rule(number=st.integers(0, 30))
    def deadline_passes(self, number: int) -> None:
        request_id = self.running(number)
        if request_id:
            self.world.do(self.raw.hset(keys.job(request_id), "deadline", 1))
            self.world.do(self.raw.zadd(keys.admitted(MODEL), {request_id: 1}, xx=True))
            self.requests[request_id].late = True

    @precondition(lambda self: any(request.late and request.exists for request in self.requests.values()))
    @rule(number=st.integers(0, 30))
    def keys_expire(self, number: int) -> None:
        """Long after the deadline: nobody claimed the job, so no script ended it."""
        late = [name for name, request in self.requests.items() if request.late and request.exists]
        request_id = late[number % len(late)]
        self.world.do(self.raw.delete(keys.job(request_id), keys.log(request_id)))
        self.requests[request_id].exists = False

    @rule(lost=st.sampled_from(["nothing", "admitted", "jobs", "entries", "lanes", "shares"]))
    def a_key_is_forgotten_and_all_is_mended(self, lost: str) -> None:
        if lost == "entries":
            self.world.do(self.raw.xtrim(keys.jobs(MODEL), maxlen=0, approximate=False))
        elif lost != "nothing":
            self.world.do(self.raw.delete(getattr(keys, lost)(MODEL)))
        self.world.do(self.gateway.mend())
        self.world.do(self.gateway.ensure_group())
        for request_id in [name for name in self.admitted if not self.requests[name].exists]:
            self.leave(request_id)
        if lost in ("jobs", "entries"):
            self.queue_again()

    def queue_again(self) -> None:
        """Everything that is claimed or first in its lane is queued, in any order, and nothing else."""
        claimed = {name for name in self.admitted if self.requests[name].epoch}
        first = {lane[0] for lane in self.lanes.values() if lane}
        entries = self.world.do(self.raw.xrange(keys.jobs(MODEL)))
        queued = [fields[b"r"].decode() for _, fields in entries]
        assert sorted(queued) == sorted(claimed | first)
        self.waiting.clear()
        self.delivered.clear()
        for request_id in queued:
            self.queue(request_id)

    @rule()
    def scripts_are_forgotten(self) -> None:
        self.world.do(self.raw.script_flush())

    # ------------------------------------------------------------ what always holds

    @invariant()
    def logs_are_what_was_committed(self) -> None:
        for request_id, request in self.requests.items():
            if not request.exists:
                continue
            entries = self.world.do(read_log(self.world.broker.redis, request_id))
            log: list[Logged] = [(base, chunk.tokens, chunk.finish) for base, chunk in entries]
            assert log == request.log
            assert_sound(request_id, log, request.state)

    @invariant()
    def epochs_never_decrease(self) -> None:
        for request_id, request in self.requests.items():
            if request.exists:
                epoch = int(self.world.do(self.raw.hget(keys.job(request_id), "epoch")))
                assert epoch == request.epoch >= self.epochs.get(request_id, 0)
                self.epochs[request_id] = epoch

    @invariant()
    def only_what_lives_is_admitted_and_queued(self) -> None:
        admitted = self.world.do(self.raw.zrange(keys.admitted(MODEL), 0, -1))
        assert {name.decode() for name in admitted} == self.admitted.keys()
        assert len(admitted) <= LIMIT
        shares = self.world.do(self.raw.hgetall(keys.shares(MODEL)))
        assert {name.decode(): share.split(b" ")[1].decode() for name, share in shares.items()} == self.admitted
        queued = [fields[b"r"].decode() for _, fields in self.world.do(self.raw.xrange(keys.jobs(MODEL)))]
        assert queued == [(self.waiting | self.delivered)[entry] for entry in sorted(self.waiting | self.delivered)]

    @invariant()
    def callers_wait_in_lanes_of_which_the_first_is_queued(self) -> None:
        places = [place.decode().split(" ") for place in self.world.do(self.raw.zrange(keys.lanes(MODEL), 0, -1))]
        for caller, lane in self.lanes.items():
            assert [request_id for name, _, request_id in places if name == caller] == lane
            if lane and self.requests[lane[0]].exists:
                assert self.entries[lane[0]] in self.waiting | self.delivered

    @invariant()
    def every_key_expires(self) -> None:
        for key in self.world.do(self.raw.keys("*")):
            assert self.world.do(self.raw.pttl(key)) > 0, key


@contextmanager
def world(url: str) -> Iterator[World]:
    """Clients of the server at `url`, or of a fake one."""
    with asyncio.Runner() as runner:
        if not url:
            server = fakeredis.FakeServer()
            one, other = (fakeredis.FakeAsyncRedis(server=server, socket_timeout=None) for _ in range(2))
            yield World(runner.get_loop(), Broker(one, other))
            runner.run(one.aclose())
            runner.run(other.aclose())
            return
        connection = connect(url)
        broker = runner.run(connection.__aenter__())
        yield World(runner.get_loop(), broker)
        runner.run(connection.__aexit__(None, None, None))


@pytest.mark.parametrize("server", ["fakeredis", "valkey"])
def test_every_call_does_what_the_model_says(request: pytest.FixtureRequest, server: str) -> None:
    chosen = settings(
        max_examples=few(80), stateful_step_count=40, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    with world("" if server == "fakeredis" else request.getfixturevalue("valkey_url")) as one:
        run_state_machine_as_test(partial(Machine, one), settings=chosen)  # type: ignore[arg-type]
