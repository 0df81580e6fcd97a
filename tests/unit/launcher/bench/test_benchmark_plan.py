"""What `draftmesh bench` asks and in which order: fair to all servers, and never what a cache has already seen."""

from itertools import pairwise

import pytest

from services.launcher.bench.plan import BenchSettings, Cell, order, turns, warm_up
from services.launcher.bench.workloads import Workload, conversation, prompts


def settings(**fields: object) -> BenchSettings:
    wanted: dict[str, object] = {
        "workloads": tuple(Workload),
        "concurrencies": (1,),
        "temperatures": (0.0, 1.0),
        "tokens": 32,
        "repeat": 3,
        "seed": 7,
    }
    return BenchSettings(**(wanted | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("workload", Workload)
def test_a_workload_has_several_prompts_and_each_begins_with_its_label(workload: Workload) -> None:
    firsts = [conversation(workload, prompt, "label")[0] for prompt in range(prompts(workload))]
    assert len({str(messages) for messages in firsts}) == len(firsts) >= 4
    assert all(messages[0]["content"].startswith("Reference label.\n") for messages in firsts)


def test_an_agent_sends_its_whole_history_again_and_it_grows() -> None:
    for prompt in range(prompts(Workload.AGENT)):
        requests = conversation(Workload.AGENT, prompt, "x")
        assert len(requests) >= 3
        for earlier, later in pairwise(requests):
            assert later[: len(earlier)] == earlier
            assert [message["role"] for message in later[len(earlier) :]] == ["assistant", "user"]


def test_all_other_workloads_ask_once() -> None:
    assert {len(conversation(workload, 0, "x")) for workload in Workload if workload is not Workload.AGENT} == {1}


def test_every_repetition_holds_every_cell_once() -> None:
    plan = turns(settings(concurrencies=(1, 4)))
    assert len(plan) == 3 * 5 * 2 * 2
    for repetition in range(3):
        cells = [turn.cell for turn in plan if turn.repetition == repetition]
        assert len(set(cells)) == len(cells) == 20


def test_a_turn_has_as_many_conversations_as_are_wanted_at_once() -> None:
    for turn in turns(settings(concurrencies=(1, 3))):
        assert len(turn.conversations) == turn.cell.concurrency
        assert all(request.temperature == turn.cell.temperature for one in turn.conversations for request in one)


def test_no_prompt_is_sent_twice_in_a_run() -> None:
    openings = [
        one[0].messages[0]["content"] for turn in turns(settings(concurrencies=(1, 4))) for one in turn.conversations
    ]
    openings += [one[0].messages[0]["content"] for one in warm_up(settings()).conversations]
    labels = [opening.splitlines()[0] for opening in openings]
    assert len(set(labels)) == len(labels)


def test_repetitions_see_different_prompts_and_seeds() -> None:
    chat = Cell(workload=Workload.CHAT, temperature=1.0, concurrency=1)
    requests = [turn.conversations[0][0] for turn in turns(settings()) if turn.cell == chat]
    assert [request.prompt for request in requests] == [0, 1, 2]
    assert len({request.seed for request in requests}) == 3
    assert all(0 <= request.seed < 2**31 for request in requests)


def test_a_seed_gives_the_same_requests_again_and_another_seed_others() -> None:
    assert turns(settings()) == turns(settings())
    labels = [
        {one[0].messages[0]["content"] for turn in turns(settings(seed=seed)) for one in turn.conversations}
        for seed in (7, 8)
    ]
    assert not labels[0] & labels[1]


def test_the_warm_up_is_short_and_as_wide_as_the_widest_turn() -> None:
    turn = warm_up(settings(concurrencies=(1, 16), workloads=(Workload.AGENT,)))
    assert len(turn.conversations) == turn.requests == 16
    assert {one[0].tokens for one in turn.conversations} == {16}


def test_odd_repetitions_go_backwards() -> None:
    assert [order(range(3), repetition) for repetition in range(3)] == [[0, 1, 2], [2, 1, 0], [0, 1, 2]]
