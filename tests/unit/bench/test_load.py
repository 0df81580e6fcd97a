"""The load benchmark's arithmetic: which tokens came when, and how long a commit took to its client."""

import asyncio

import pytest

from bench.gateway.client import Arrivals, Stream
from bench.gateway.latency import Window, added_ms, tokens_within, window
from bench.gateway.report import Scenario, figures
from bench.gateway.streams import Run
from bench.gateway.target import Commits
from tests.patience import HANG_S

MS = 1_000_000


def test_streams_flow_all_at_once_from_the_last_first_token_to_the_first_last_one() -> None:
    streams = [Arrivals(1, [4, 8], [10, 90]), Arrivals(2, [4, 8], [30, 70])]
    assert window(streams) == Window(30, 70)


def test_only_tokens_that_arrived_in_the_window_count() -> None:
    streams = [Arrivals(1, [4, 8, 12], [10, 30, 90])]
    assert tokens_within(streams, Window(10, 90)) == 8
    assert tokens_within(streams, Window(11, 90)) == 4
    assert tokens_within(streams, Window(0, 91)) == 12


def test_a_commit_arrives_with_the_read_that_brings_its_last_token() -> None:
    commits = {1: Commits(1, [4, 8, 12], [0, 10 * MS, 20 * MS])}
    merged = [Arrivals(1, [4, 12], [3 * MS, 25 * MS])]
    assert added_ms(commits, merged, Window(0, 100 * MS)) == [3, 15, 5]
    assert added_ms(commits, merged, Window(5 * MS, 15 * MS)) == [15]


def test_a_commit_that_never_arrived_has_no_latency() -> None:
    assert added_ms({1: Commits(1, [4, 8], [0, 1])}, [Arrivals(1, [4], [MS])], Window(0, MS)) == [1]


FRAME = b'data: {"choices":[{"delta":{"content":" one two"}}]}\n\n'


@pytest.mark.parametrize("cut", range(1, len(FRAME), 9))
async def test_a_client_counts_tokens_however_they_are_cut_into_reads(cut: int) -> None:
    stream = Stream(7, 100)
    data = b"HTTP/1.1 200 OK\r\n\r\n2f\r\n" + FRAME + b"\r\n9\r\n: ping\n\n\r\n2f\r\n" + FRAME + b"\r\n"
    for start in range(0, len(data), cut):
        stream.data_received(data[start : start + cut])
    assert stream.arrivals.offsets[-1] == 4
    assert (stream.arrivals.frames, stream.arrivals.pings) == (2, 1)
    assert stream.flowing.done()
    stream.connection_lost(None)
    await asyncio.wait_for(stream.ended, HANG_S)


def run(**changes: float) -> Run:
    values: dict[str, float] = {"tokens_per_second": 16_000, "p99_ms": 20} | changes
    return Run(
        seconds=1,
        median_ms=1,
        worst_ms=2,
        commits=1,
        tokens_per_read=4,
        gateway_us_per_token=20,
        cpu={"gateway": 0.5},
        start_s=1,
        **values,
    )


def test_figures_are_medians_with_their_extremes_and_judged_by_the_median() -> None:
    bound, told_only = (Scenario(name="s", what="", bound=bound) for bound in (True, False))
    told = {one.what: one for one in figures(bound, [run(p99_ms=10), run(p99_ms=24), run(p99_ms=60)])}
    latency = told["added latency, p99"]
    spread = latency.ratio
    assert (spread.value, spread.low, spread.high, latency.reached) == (24, 10, 60, True)
    assert told["SSE tokens"].reached
    assert not {one.what: one for one in figures(bound, [run(tokens_per_second=14_000)])}["SSE tokens"].reached
    assert all(one.reached is None for one in figures(told_only, [run()]))
