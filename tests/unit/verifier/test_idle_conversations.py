"""Conversations that leave the cache and come back get the same answers, and their usage tells what was not read."""

import random

import pytest

from shared.wire.messages import Sampling
from tests.toys import VOCABULARY, job, plain_answer
from tests.unit.verifier.bench import Bench

N_CTX = 1024


@pytest.mark.parametrize("unified", [True, False], ids=["unified", "streams"])
@pytest.mark.parametrize("states", [3, 100], ids=["room for three", "room for all"])
def test_turns_of_many_conversations_get_the_answers_that_they_would_get_alone(unified: bool, states: int) -> None:
    bench = Bench(cache_ram=states * 400 * 4, unified=unified, n_ctx=N_CTX, max_rows=512, branches=3 if unified else 0)
    source = random.Random(5)
    turns = [[source.randrange(2, VOCABULARY) for _ in range(200)] for _ in range(7)]
    for number in range(40):
        requests = []
        for index in source.sample(range(7), source.randrange(1, 5)):
            turns[index].append(source.randrange(2, VOCABULARY))
            name = f"{number}-{index}"
            requests.append((index, job(name, prompt=turns[index], max_tokens=4, sampling=Sampling(seed=number))))
            bench.admit(requests[-1][1])
            bench.round()
        bench.finish()
        for index, request in requests:
            answer = bench.answers[request.request_id]
            assert answer == plain_answer(request, n_ctx=N_CTX)
            turns[index] += answer
    counted = bench.engine.counters.values
    assert counted["restored_tokens"] > 0
    assert counted["cached_tokens"] > counted["restored_tokens"]
    assert (counted["evicted_states"] > 0) == (states == 3)
    assert bench.engine.saved is not None
    assert bench.engine.saved.size <= states * 400 * 4


def test_a_conversation_that_comes_back_says_how_much_of_it_was_not_read() -> None:
    bench = Bench(cache_ram=1 << 20, n_ctx=N_CTX, max_rows=512)
    first = [2 + step % 50 for step in range(300)]
    for name, prompt in (("a", first), ("b", [9, *first]), ("a again", [*first, 60])):
        bench.admit(job(name, prompt=prompt, max_tokens=1))
        bench.finish()
    assert bench.chunks[-1].cached == len(first) == bench.engine.counters.values["restored_tokens"]


def test_without_host_memory_conversations_stay_on_the_device() -> None:
    bench = Bench(n_ctx=N_CTX, max_rows=512)
    for start in (2, 9, 20):
        bench.admit(job(f"r{start}", prompt=[start + step % 40 for step in range(300)], max_tokens=1))
        bench.finish()
    assert bench.target.saves == 0
    assert sum(map(bool, bench.target.cells)) == 3
