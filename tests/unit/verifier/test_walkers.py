"""Draws on several threads: which thread makes a draw changes no answer."""

import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

from services.verifier import walkers
from shared.law import draws
from shared.law.sampling import Draw
from shared.wire.messages import Finish, Sampling
from tests.toys import VOCABULARY, breaking, job, plain_answer
from tests.unit.verifier.bench import Bench


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of all threads that draw, from rows of any length."""
    names: set[str] = set()
    original = draws.draw

    def draw(*arguments: Any) -> Draw:
        names.add(threading.current_thread().name.split("_")[0])
        return original(*arguments)

    monkeypatch.setattr(walkers, "LONG", 1)
    monkeypatch.setattr(draws, "draw", draw)
    return names


def run(bench: Bench, requests: int, law: Callable[[int], Sampling]) -> None:
    """Answer so many requests at once, with drafts that branch and are half right; each is the plain loop's."""
    jobs = [job(f"r{seed}", prompt=[5, 6, 7 + seed], max_tokens=24, sampling=law(seed)) for seed in range(requests)]
    answers = {request.request_id: plain_answer(request) for request in jobs}
    generations = [bench.admit(request) for request in jobs]

    def propose() -> None:
        for generation in generations:
            coming = answers[generation.job.request_id][generation.offset :][:4]
            wrong = [(token + 1) % VOCABULARY for token in coming]
            if coming:
                parents = (-1, *range(len(coming) - 1)) * 2
                bench.propose(generation, generation.offset, [*coming[:2], *wrong[2:], *wrong], parents=parents)

    bench.finish(propose)
    bench.engine.close()
    assert bench.answers == answers


LAWS: dict[str, Callable[[int], Sampling]] = {
    "greedy": lambda seed: Sampling(seed=seed, temperature=0.0),
    "untruncated": lambda seed: Sampling(seed=seed),
    "cut": lambda seed: Sampling(seed=seed, top_k=20, top_p=0.9),
    "penalties": lambda seed: Sampling(seed=seed, repetition_penalty=1.2),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("requests", [1, 4])
def test_answers_are_the_plain_loops_however_many_threads_draw(law: str, requests: int, threads: set[str]) -> None:
    run(Bench(threads=3, branches=7), requests, LAWS[law])
    if requests == 1 and law in ("greedy", "penalties"):
        assert threads == {"MainThread"}, "such draws are quick, or depend on the one before"
    else:
        assert "draw" in threads


def test_with_one_thread_nobody_else_draws(threads: set[str]) -> None:
    run(Bench(threads=1, branches=7), 4, LAWS["untruncated"])
    assert threads == {"MainThread"}


def test_short_rows_are_drawn_from_at_once(threads: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walkers, "LONG", VOCABULARY + 1)
    run(Bench(threads=3, branches=7), 4, LAWS["untruncated"])
    assert threads == {"MainThread"}


@pytest.mark.parametrize("requests", [1, 3])
def test_broken_logits_end_their_own_request_whichever_thread_draws(requests: int, threads: set[str]) -> None:
    doomed = job("doomed", prompt=[5, 6, 7])
    answer = plain_answer(doomed)
    bench = Bench(threads=3, branches=7, model=breaking([5, 6, 7, *answer[:2]], math.nan))
    generation = bench.admit(doomed)
    others = [job(f"r{seed}", prompt=[9, 8, seed], max_tokens=4) for seed in range(requests - 1)]
    for other in others:
        bench.admit(other)
    bench.round()
    bench.propose(generation, 1, answer[1:4])  # the first of these has the broken row
    bench.finish()
    bench.engine.close()
    assert bench.finishes["doomed"] is Finish.ERROR
    assert bench.answers["doomed"] == answer[:2]
    assert "draw" in threads
    assert all(bench.answers[other.request_id] == plain_answer(other) for other in others)
