"""While a prompt of 4,000 tokens arrives, requests that run get their tokens at no less than half the speed."""

import math
from collections.abc import Mapping

import numpy as np
import pytest

from services.verifier.engine import Engine
from services.verifier.generation import Generation
from services.verifier.pieces import PREFILL_MS, Pieces
from shared.law.speedup import RowCosts
from shared.model.rows import Rows
from shared.wire.jobs import Claim
from shared.wire.messages import Speculation
from tests.toys import EOG, VOCABULARY, ToyTarget, job

PROMPT = 4000
# Milliseconds by rows, and what a row costs per 1,000 tokens before it.
MACHINES: dict[str, tuple[dict[int, float], float]] = {
    "a large model on a GPU": ({1: 25.0, 8: 25.5, 64: 27.0, 256: 45.0, 512: 85.0}, 0.005),
    "a small model on a GPU": ({1: 2.0, 8: 2.2, 64: 3.0, 512: 9.0}, 0.002),
    "two cores": ({1: 20.0, 2: 25.0, 4: 34.0, 8: 50.0, 16: 90.0, 32: 170.0}, 0.4),
    "eight cores": ({1: 60.0, 2: 62.0, 4: 70.0, 8: 95.0, 16: 150.0, 32: 260.0}, 0.5),
}


class Machine(ToyTarget):
    """A target whose decodes take what rows cost, and more where much came before; it answers the same for ever."""

    def __init__(self, table: Mapping[int, float], depth_ms: float) -> None:
        logits = np.eye(VOCABULARY, dtype=np.float32)[7]
        super().__init__(n_ctx=2 * PROMPT, sequences=8, max_rows=512, model=lambda tokens: logits)
        self._costs = RowCosts(table)
        self._depth_ms = depth_ms / 1000
        self.now_ms = 0.0

    def decode(self, rows: Rows) -> None:
        super().decode(rows)
        self.now_ms += self._costs(len(rows)) + self._depth_ms * sum(rows.positions)


class Paced:
    """A real engine over such a machine, in the machine's time."""

    def __init__(self, table: dict[int, float], depth_ms: float) -> None:
        self._target = Machine(table, depth_ms)
        self.engine = Engine(self._target, RowCosts(table), [EOG], clock=lambda: self._target.now_ms / 1000)

    def admit(self, name: str, prompt: list[int]) -> Generation:
        request = job(name, prompt, PROMPT, speculation=Speculation.OFF)
        return self.engine.admit(Claim(job=request, epoch=1, committed=0, remaining_ms=1 << 40), [])

    def round(self) -> float:
        """Milliseconds between two tokens of whatever decodes."""
        began = self._target.now_ms
        plan = self.engine.plan()
        decoded = self.engine.run(plan)
        self.engine.finish(decoded)
        return self._target.now_ms - began


def p99(values: list[float]) -> float:
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


@pytest.mark.slow
@pytest.mark.parametrize("streams", [1, 4])
@pytest.mark.parametrize("machine", MACHINES)
def test_running_streams_keep_half_their_speed_while_a_long_prompt_arrives(machine: str, streams: int) -> None:
    bench = Paced(*MACHINES[machine])
    for index in range(streams):
        bench.admit(f"stream {index}", [5, 6, index + 7] * 100)
    while any(generation.uncomputed > 1 for generation in bench.engine.running):
        bench.round()
    plain = p99([bench.round() for _ in range(100)])
    newcomer = bench.admit("newcomer", [9] * PROMPT)
    gaps = []
    while newcomer.uncomputed > 1:
        gaps.append(bench.round())
    assert p99(gaps) <= 2 * plain
    # The newcomer is not starved in its turn: a good part of the time is its own.
    assert sum(gap - plain for gap in gaps) >= 0.25 * sum(gaps)


@pytest.mark.parametrize("streams", [0, 1])
@pytest.mark.parametrize("machine", MACHINES)
def test_a_short_prompt_is_read_in_about_twice_its_own_time_whatever_came_before(machine: str, streams: int) -> None:
    def rounds(long_ones: int) -> tuple[int, list[Generation]]:
        bench = Paced(*MACHINES[machine])
        for index in range(streams):
            bench.admit(f"stream {index}", [5, 6])
        while bench.engine.running and bench.engine.running[-1].uncomputed > 1:
            bench.round()
        long = [bench.admit(f"long {index}", [9] * PROMPT) for index in range(long_ones)]
        short = bench.admit("short", [7] * 30)
        count = 0
        while short.uncomputed > 1:
            bench.round()
            count += 1
        return count, long

    (alone, _), (beside, long) = rounds(0), rounds(3)
    assert beside <= 2 * alone + 1
    assert all(generation.uncomputed > 1 for generation in long)


def test_no_number_of_short_prompts_keeps_a_long_one_from_being_read() -> None:
    bench = Paced(*MACHINES["two cores"])
    bench.admit("stream", [5, 6])
    bench.round()
    long = bench.admit("long", [9] * 500)
    newest = bench.admit("short 0", [7] * 30)
    count = 0
    while long.uncomputed > 1:
        if newest.uncomputed == 1:
            bench.engine.drop(newest)
            newest = bench.admit(f"short {count}", [7] * 30)
        bench.round()
        count += 1
        assert count < 2 * 500


def test_prompts_take_turns_at_being_first() -> None:
    pieces = Pieces(RowCosts({1: 10.0, 64: 20.0}), min_rows=1, max_rows=512)

    def read(unread: list[int]) -> list[int]:
        pieces.order(unread)
        order = pieces.order(unread)  # planning again is no turn
        pieces.observe(0, 1, 10.0)
        return order

    assert read([]) == []
    assert read([300]) == read([290]) == [0]
    assert read([280, 200, 9]) == [2, 1, 0]  # one has just come
    assert read([280, 200, 8]) == [0, 2, 1]
    assert read([270, 200, 8]) == [2, 1, 0]
    assert read([270, 200]) == [0, 1]
    assert read([260, 200]) == [1, 0]


def test_a_first_token_does_not_wait_for_a_part_of_another_prompt() -> None:
    bench = Paced(*MACHINES["two cores"])
    bench.admit("long", [9] * PROMPT)
    bench.round()
    shorts = [bench.admit(f"short {index}", [7] * 5) for index in range(2)]
    plan = bench.engine.plan()
    assert [entry.generation for entry in plan.entries] == shorts
    assert plan.prefill_rows == len(plan.rows) == 10


def test_in_streams_the_rest_of_a_piece_is_a_decode_of_its_own() -> None:
    """llama.cpp cuts a batch there into pieces of equal rows for each sequence."""
    costs = RowCosts({1: 10.0, 64: 20.0})
    assert Pieces(costs, 1, 512, unified=True).rows(1) > 40
    assert Pieces(costs, 1, 512, unified=False).rows(1) == 1  # a second decode would take too long
    cheap = RowCosts({1: 10.0, 2: 10.1, 4: 30.0, 8: 31.0})
    rows = Pieces(cheap, 1, 512, unified=False).rows(4)
    assert cheap(5) + cheap(rows - 1) <= 2 * cheap(4)
    assert rows > 1


@pytest.mark.parametrize("unified", [True, False])
def test_beside_requests_with_drafts_a_piece_may_take_as_much_longer_as_their_rounds_do(unified: bool) -> None:
    costs = RowCosts({1: 10.0, 2: 12.0, 64: 136.0})
    pieces = Pieces(costs, min_rows=1, max_rows=512, unified=unified)
    plain = pieces.rows(2)
    for _ in range(60):
        pieces.decoded(requests=2, rows=24, alone=True)
    rows = pieces.rows(2)
    assert rows >= 3 * plain
    assert (costs(24 + rows) if unified else costs(25) + costs(rows - 1)) <= 2 * costs(24)
    assert pieces.rows(2, 24) == rows
    assert pieces.rows(2, 30) < rows  # what drafts take more than usual they take from the piece
    for _ in range(60):  # it took long, so there are more drafts
        pieces.decoded(requests=2, rows=64, alone=False)
    assert pieces.rows(2) == rows
    for _ in range(60):  # the drafter is gone
        pieces.decoded(requests=2, rows=2, alone=False)
    assert pieces.rows(2) == plain


def test_beside_drafts_whose_rows_have_become_dearer_a_piece_is_no_smaller_than_beside_plain_steps() -> None:
    costs = RowCosts({1: 10.0, 16: 10.5, 64: 136.0})
    drafted, plain = (Pieces(costs, min_rows=1, max_rows=512) for _ in range(2))
    for _ in range(60):
        drafted.decoded(requests=2, rows=24, alone=True)
    for pieces in (drafted, plain):
        for _ in range(60):
            pieces.observe(24, 4, 1.6 * costs(28))
    assert drafted.rows(2, 24) == plain.rows(2) > 1


def test_a_prompt_gets_on_where_a_single_row_is_too_dear() -> None:
    pieces = Pieces(RowCosts({1: 10.0, 2: 40.0}), min_rows=1, max_rows=512)
    assert pieces.rows(1) == 1
    strict = Pieces(RowCosts({1: 10.0, 2: 40.0}), min_rows=2, max_rows=512)
    assert strict.rows(1) == 2


def test_a_piece_alone_takes_no_longer_than_leases_allow_however_deep_it_is() -> None:
    costs = RowCosts({1: 10.0, 100: 1000.0})
    pieces = Pieces(costs, min_rows=1, max_rows=4096)
    assert pieces.rows(0) == 200
    for _ in range(30):
        rows = pieces.rows(0)
        pieces.observe(0, rows, 3 * costs(rows))
    assert 3 * costs(pieces.rows(0)) <= PREFILL_MS * 1.05
    assert pieces.rows(1) == Pieces(costs, min_rows=1, max_rows=4096).rows(1)  # what is shared is measured apart


def test_one_slow_decode_is_not_believed() -> None:
    costs = RowCosts({1: 10.0, 64: 20.0})
    pieces = Pieces(costs, min_rows=1, max_rows=512)
    before = pieces.rows(1)
    pieces.observe(1, before, 100 * costs(before))
    assert pieces.rows(1) >= before // 2
