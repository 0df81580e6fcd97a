"""A budget ends thinking at its exact offset, and never anything else."""

from collections.abc import Sequence

from services.verifier.thinking import ThinkingBudget
from shared.wire.messages import ThinkingLimit

START, END = (10, 11), (20, 21)
CLOSE = (7, 8, *END)


def budget(tokens: int, opened: bool) -> ThinkingBudget:
    return ThinkingBudget(ThinkingLimit(budget=tokens, opened=opened, start=START, end=END, close=CLOSE))


def yes(tokens: Sequence[int]) -> bool:
    return True


def written(one: ThinkingBudget, wanted: Sequence[int]) -> list[int]:
    """What comes of a model that wants to say this: what is due replaces it."""
    answer = []
    for token in wanted:
        due = one.due(yes)
        answer.append(due[0] if due else token)
        one.push(answer[-1], bool(due))
    return answer


def test_the_span_is_closed_after_so_many_tokens_and_the_answer_is_free_again() -> None:
    assert written(budget(3, opened=True), range(100, 112)) == [100, 101, 102, *CLOSE, 107, 108, 109, 110, 111]


def test_a_budget_of_nothing_closes_at_once() -> None:
    assert written(budget(0, opened=True), range(100, 106)) == [*CLOSE, 104, 105]


def test_a_span_that_the_model_opens_is_counted_from_there() -> None:
    said = [100, 101, *START, 102, 103, 104, 105, 106, 107, 108]
    assert written(budget(2, opened=False), said) == [100, 101, *START, 102, 103, *CLOSE, 108]


def test_a_model_that_ends_in_time_or_never_begins_is_left_alone() -> None:
    for said in ([100, 101, *END, *range(102, 110)], [100, *END, 101, 102, 103]):
        assert written(budget(5, opened=True), said) == said
    said = [*range(100, 110), 10, 12, 11]
    assert written(budget(0, opened=False), said) == said


def test_all_spans_of_an_answer_share_the_budget() -> None:
    said = [100, 101, *END, 102, *START, 103, 104, 105, 106, 107, 108]
    assert written(budget(3, opened=True), said) == [100, 101, *END, 102, *START, 103, *CLOSE, 108]


def test_a_model_that_is_writing_the_end_itself_is_not_cut_off() -> None:
    assert written(budget(3, opened=True), [100, 101, *END, 102, 103]) == [100, 101, *END, 102, 103]
    stalling = [100, 101, 20, 20, 20, 20, 20, 20]
    assert written(budget(3, opened=True), stalling) == [100, 101, 20, 20, *CLOSE]


def test_taking_tokens_back_is_as_if_they_had_never_come() -> None:
    said = [100, *START, 101, 102, 103, 104, 105, 106, 107, *START, 108, 109]
    plain, back = budget(2, opened=False), budget(2, opened=False)
    for token in said:
        for detour in ([50], [*START, 60, 61, 62], [*END, 70]):
            for other in detour:
                due = back.due(yes)
                back.push(due[0] if due else other, bool(due))
            back.pop(len(detour))
        assert back.due(yes) == plain.due(yes)
        due = plain.due(yes)
        for one in (plain, back):
            one.push(due[0] if due else token, bool(due))


def test_the_close_waits_for_a_place_where_all_of_it_may_come() -> None:
    one = budget(1, opened=True)
    one.push(100, False)
    assert one.due(lambda tokens: len(tokens) < 4) == ()
    one.push(101, False)
    assert one.due(yes) == CLOSE
    one.push(CLOSE[0], True)
    assert one.due(lambda tokens: False) == CLOSE[1:], "what is begun is ended"
