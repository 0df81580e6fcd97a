"""Steady rounds of a whole engine: on a card's costs decodes keep their shape, on a CPU's nothing is padded, and no
answer changes."""

import random
from functools import cache
from itertools import pairwise
from statistics import mean

import pytest

from tests.toys import job, plain_answer
from tests.unit.verifier.bench import Bench

CTX = 1000
TOKENS = 700


def linear(base: float, row: float) -> dict[int, float]:
    return {1: base + row, 512: base + 512 * row}


CARDS = {"10 + 0.5": linear(10, 0.5), "10 + 0.05": linear(10, 0.05)}
CPU = linear(30, 5.0)


def answered(
    costs: dict[int, float],
    *,
    graph_ms: float = 1.0,
    requests: int = 1,
    trees: bool = False,
    tokens: int = TOKENS,
    n_ctx: int = CTX,
    unified: bool = True,
) -> Bench:
    """Whole answers with eight drafts a round, of which a random number is right; the first may have alternatives."""
    bench = Bench(costs, n_ctx=n_ctx, max_rows=128, branches=7 if trees else 0, unified=unified, graph_ms=graph_ms)
    source = random.Random(4)
    asked = [job(f"r{index}", prompt=(5, 6, 7 + index), max_tokens=tokens) for index in range(requests)]
    right = {request.request_id: plainly(request.prompt, tokens, n_ctx) for request in asked}
    running = [bench.admit(request) for request in asked]

    def propose() -> None:
        for generation in running:
            coming = right[generation.job.request_id][generation.offset : generation.offset + 8]
            if generation not in bench.engine.running or generation.uncomputed != 1 or not coming:
                continue
            good = source.randint(0, 8)
            chain = [token if place < good else other(token) for place, token in enumerate(coming)]
            beside = [other(other(token)) for token in chain[: source.randint(0, 8) if trees else 0]]
            parents = (*range(-1, len(chain) - 1), *range(-1, len(beside) - 1))
            bench.propose(generation, generation.offset, [*chain, *beside], parents=parents)

    bench.finish(propose)
    assert bench.answers == right
    return bench


@cache
def plainly(prompt: tuple[int, ...], tokens: int, n_ctx: int) -> list[int]:
    return plain_answer(job(prompt=prompt, max_tokens=tokens), n_ctx=n_ctx)


def other(token: int) -> int:
    return (token - 1) % 60 + 2


def reused(bench: Bench) -> float:
    """The share of decodes with the shape of the one before, without those of the beginning and the end."""
    shapes = [rows.shape for rows in bench.target.decodes[20:-5]]
    return mean(one == following for one, following in pairwise(shapes))


@pytest.mark.parametrize("trees", [False, True], ids=["chains", "trees"])
@pytest.mark.parametrize("costs", CARDS.values(), ids=CARDS)
def test_on_a_card_nine_of_ten_decodes_have_the_shape_of_the_one_before(costs: dict[int, float], trees: bool) -> None:
    bench = answered(costs, trees=trees)
    assert bench.engine.counters.values["decodes"] > 120
    assert reused(bench) >= 0.9


@pytest.mark.parametrize("trees", [False, True], ids=["chains", "trees"])
def test_several_requests_keep_their_common_shape(trees: bool) -> None:
    usual, kept = (answered(CARDS["10 + 0.5"], requests=3, trees=trees, tokens=300, graph_ms=ms) for ms in (0.0, 2.0))
    assert reused(usual) < 0.4
    assert reused(kept) >= 0.9


def test_streams_keep_their_shape() -> None:
    usual, kept = (answered(CARDS["10 + 0.5"], requests=3, unified=False, tokens=300, graph_ms=ms) for ms in (0.0, 2.0))
    assert reused(kept) >= 0.9 > reused(usual)


@pytest.mark.parametrize("requests", [1, 3])
def test_on_a_cpu_nothing_is_padded(requests: int) -> None:
    for trees in (False, True):
        bench = answered(CPU, requests=requests, trees=trees, tokens=300, graph_ms=0.3)
        assert bench.engine.counters.values["padding_rows"] == 0


def test_padding_is_counted_and_teaches_what_so_many_rows_cost() -> None:
    bench = answered(CARDS["10 + 0.05"], trees=True)
    rows = sum(map(len, bench.target.decodes))
    counted = bench.engine.counters.values
    needed = counted["draft_tokens"] + counted["rounds"] + 2  # and the prompt but for its last token
    assert counted["padding_rows"] == rows - needed > 0
    assert dict(bench.engine.costs.table) == pytest.approx(CARDS["10 + 0.05"])


def test_padding_stays_within_the_context() -> None:
    """The toy target refuses a position beyond it."""
    for unified in (True, False):
        bench = answered(CARDS["10 + 0.05"], n_ctx=64, tokens=100, requests=2, unified=unified, graph_ms=3.0)
        assert bench.engine.counters.values["padding_rows"] > 0


def test_no_decode_gives_more_logits_than_it_would_without_padding() -> None:
    usual, kept = (answered(CARDS["10 + 0.05"], requests=3, trees=True, tokens=300, graph_ms=ms) for ms in (0.0, 1.0))
    most = [max(sum(rows.outputs) for rows in bench.target.decodes) for bench in (usual, kept)]
    assert most[1] <= most[0]


def test_a_long_prompt_beside_running_streams_is_read_in_equal_pieces() -> None:
    bench = Bench({1: 2.0, 512: 40.0}, n_ctx=4200, max_rows=512, graph_ms=1.0)
    for name in ("a", "b"):
        bench.admit(job(name, max_tokens=400))
    for _ in range(20):
        bench.round()
    began = len(bench.target.decodes)
    long = bench.admit(job("long", prompt=[5] * 1000, max_tokens=3))
    while long.uncomputed > 1:
        bench.round()
    shapes = [rows.shape for rows in bench.target.decodes[began:-1]]
    assert len(shapes) > 10
    assert len(set(shapes)) <= 0.1 * len(shapes) + 1
