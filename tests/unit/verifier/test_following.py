"""Requests that arrive together with prompts that begin alike: the common part is read once."""

import pytest

from services.verifier.generation import Generation
from shared.wire.messages import Job, Sampling
from tests.toys import job, plain_answer
from tests.unit.verifier.bench import Bench

PROMPT = [2 + step % 50 for step in range(150)]


def choices(count: int, prompt: list[int] = PROMPT) -> list[Job]:
    return [job(f"r{index}", prompt=prompt, max_tokens=8, sampling=Sampling(seed=index)) for index in range(count)]


def prompt_rows(bench: Bench) -> int:
    """Rows at positions of prompts, without those that only give a first token."""
    return sum(position < len(PROMPT) - 1 for rows in bench.target.decodes for position in rows.positions)


@pytest.mark.parametrize("unified", [True, False], ids=["unified", "streams"])
def test_choices_that_arrive_together_read_their_prompt_once(unified: bool) -> None:
    bench = Bench(unified=unified)
    requests = choices(4)
    generations = [bench.admit(request) for request in requests]
    bench.finish()
    assert prompt_rows(bench) == len(PROMPT) - 1
    assert bench.answers == {request.request_id: plain_answer(request) for request in requests}
    assert [generation.cached for generation in generations] == [0] + [len(PROMPT) - 1] * 3
    assert bench.engine.counters.values["cached_tokens"] == 3 * (len(PROMPT) - 1)
    assert sorted(chunk.cached for chunk in bench.chunks if chunk.cached) == [len(PROMPT) - 1] * 3


def test_a_common_beginning_is_read_once_and_each_reads_its_own_rest() -> None:
    bench = Bench()
    requests = [job(f"r{index}", prompt=[*PROMPT, 10 + index, 20], max_tokens=5) for index in range(3)]
    for request in requests:
        bench.admit(request)
    bench.finish()
    assert prompt_rows(bench) == len(PROMPT) - 1
    assert bench.answers == {request.request_id: plain_answer(request) for request in requests}


def abandon(bench: Bench, generation: Generation) -> None:
    bench.engine.drop(generation)
    del bench.answers[generation.job.request_id]


@pytest.mark.parametrize("rounds", [0, 1], ids=["before it reads", "while it reads"])
def test_when_the_reader_is_cancelled_the_next_one_reads(rounds: int) -> None:
    bench = Bench()
    requests = choices(4)
    first, *_ = [bench.admit(request) for request in requests]
    for _ in range(rounds):
        bench.round()
    abandon(bench, first)
    read = prompt_rows(bench)
    bench.finish()
    assert prompt_rows(bench) - read == len(PROMPT) - 1
    assert bench.answers == {request.request_id: plain_answer(request) for request in requests[1:]}


def test_a_request_that_waits_may_be_cancelled() -> None:
    bench = Bench()
    requests = choices(3)
    _, second, _ = [bench.admit(request) for request in requests]
    abandon(bench, second)
    bench.finish()
    assert prompt_rows(bench) == len(PROMPT) - 1
    assert bench.answers == {request.request_id: plain_answer(request) for request in (requests[0], requests[2])}


def test_private_requests_neither_follow_nor_lead() -> None:
    bench = Bench()
    first = bench.admit(job("open", prompt=PROMPT))
    private = bench.admit(job("private", prompt=PROMPT, cache_prompt=False))
    late = bench.admit(job("late", prompt=PROMPT))
    assert private.leader is None
    assert late.leader is not None
    assert late.leader.generation is first
    bench.finish()
    assert prompt_rows(bench) == 2 * (len(PROMPT) - 1)
    assert private.cached == 0


def test_who_follows_a_long_prompt_for_its_beginning_waits_no_longer_than_for_its_own() -> None:
    """The long prompt is read first, as a short one would be, until its follower has its part."""
    bench = Bench(max_rows=16)
    long = bench.admit(job("long", prompt=[*PROMPT, *([7] * 80)], max_tokens=2))
    other = bench.admit(job("other", prompt=[60] * 170, max_tokens=2))
    short = bench.admit(job("short", prompt=[*PROMPT, 61], max_tokens=2))
    while not short.committed_now:
        bench.round()
    assert long.uncomputed > 1
    assert other.uncomputed > 1


def test_windows_share_nothing_so_each_request_reads_for_itself() -> None:
    bench = Bench(window=200)
    for request in choices(2):
        assert bench.admit(request).leader is None
