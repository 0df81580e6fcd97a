"""The engine over a target that computes in the background, as a GPU does."""

from concurrent.futures import ThreadPoolExecutor

from services.verifier.engine import Engine
from services.verifier.round import Decoded
from shared.law.speedup import RowCosts
from shared.wire.jobs import Claim
from shared.wire.messages import Finish, Job, Sampling
from tests.background import BackgroundTarget
from tests.toys import EOG, drafter_card, job, plain_answer
from tests.unit.verifier.bench import CHEAP, Bench


class BackgroundBench(Bench):
    """Rounds in a thread of their own; this thread is the event loop, and the device."""

    def __init__(self) -> None:
        super().__init__()
        self.device = BackgroundTarget(sequences=4, branches=7)
        self.engine = Engine(self.device, RowCosts(CHEAP), [EOG], clock=lambda: self.now)
        self.engine.drafters.update([drafter_card("d", model="d")])
        self.free = 0  # rounds in which this thread could work while the device computed
        self._thread = ThreadPoolExecutor(1)

    def round(self) -> None:
        running = self._thread.submit(self.engine.run, self.engine.plan(may_wait=False))
        self.device.wait_for_decode()
        assert not running.done()
        self.free += 1
        self.device.compute()
        self.take(running.result(30))

    def take(self, decoded: Decoded) -> None:
        for gain in self.engine.finish(decoded):
            if gain.chunk is not None:
                name = gain.generation.job.request_id
                self.answers[name] += gain.chunk.tokens
                if gain.chunk.finish is not Finish.NONE:
                    self.engine.drop(gain.generation)


def requests() -> list[Job]:
    greedy = Sampling(seed=3, temperature=0.0, logit_bias=((EOG, -100.0),))
    return [job("a"), job("b", prompt=(9, 8), sampling=greedy)]


def test_answers_of_a_target_in_the_background_are_the_plain_ones() -> None:
    """Were a row read before its decode is done, or after the next one began, it would be NaN and end the request."""
    bench = BackgroundBench()
    generations = {one.request_id: (bench.admit(one), plain_answer(one)) for one in requests()}

    def guess() -> None:
        for generation, answer in generations.values():
            if generation in bench.engine.running:
                right = answer[generation.offset : generation.offset + 3]
                bench.propose(generation, generation.offset, [*right[:2], 40, 41])

    bench.finish(guess)
    assert bench.answers == {name: answer for name, (_, answer) in generations.items()}
    assert bench.device.reads_while_computing == 0
    assert bench.engine.counters.values["accepted_tokens"] > 0


def test_while_the_device_computes_other_threads_run() -> None:
    bench = BackgroundBench()
    bench.admit(job("a", max_tokens=6))
    bench.finish()
    assert bench.free == bench.engine.counters.values["decodes"] == 6


def test_a_request_that_arrives_during_a_decode_is_in_the_next_one() -> None:
    bench = BackgroundBench()
    bench.admit(job("a", max_tokens=4))
    running = bench._thread.submit(bench.engine.run, bench.engine.plan(may_wait=False))
    bench.device.wait_for_decode()
    late = Claim(job=job("b", max_tokens=4), epoch=1, committed=0, remaining_ms=10_000)  # claimed meanwhile
    bench.device.compute()
    bench.take(running.result(30))
    bench.admit(late.job)
    plan = bench.engine.plan(may_wait=False)
    assert {entry.generation.job.request_id for entry in plan.entries} == {"a", "b"}
