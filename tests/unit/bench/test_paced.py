"""The emulated target: decodes take what the curve says, and replayed logits are the recorded ones."""

import pytest

from bench.paced.emulation import SCENARIOS
from bench.paced.scripted import Recording, Scripted, record
from bench.paced.target import Curve, Paced, parse_curve
from shared.errors import StartError
from shared.law.sampling import Logits
from shared.model.rows import LlamaError, Rows
from tests.toys import DEFAULT_SAMPLING, EOG, VOCABULARY, ToyTarget, job, logits_after, plain_answer


def rows(tokens: list[int], position: int = 0, sequence: int = 0) -> Rows:
    made = Rows()
    for token in tokens:
        made.add(token, position, (sequence,), True)
        position += 1
    return made


class Clock:
    """Time that passes only in decodes and in waits."""

    def __init__(self) -> None:
        self.now = 5.0

    def __call__(self) -> float:
        return self.now

    def until(self, moment: float) -> None:
        self.now = max(self.now, moment)

    def take(self, ms: float) -> None:
        self.now += ms / 1000


@pytest.mark.parametrize("count", [1, 2, 16])
def test_a_decode_takes_what_the_curve_says(count: int) -> None:
    clock = Clock()
    inner = ToyTarget(took=lambda rows: clock.take(7.0 * rows))
    paced = Paced(inner, Curve(100, 3), clock=clock, until=clock.until)
    paced.decode(rows(list(range(count))))
    assert (clock.now - 5.0) * 1000 == pytest.approx(100 + 3 * count)
    assert inner.cells[0] == list(range(count))
    assert paced.overruns == 0


def test_a_decode_that_is_slower_than_the_curve_is_counted_and_not_hidden() -> None:
    clock = Clock()
    paced = Paced(ToyTarget(took=lambda rows: clock.take(50)), Curve(26, 1), clock=clock, until=clock.until)
    paced.decode(rows([4, 5]))
    assert (clock.now - 5.0) * 1000 == pytest.approx(50)
    assert paced.overruns == 1


def test_everything_but_time_and_the_row_budget_is_the_inner_targets() -> None:
    inner = ToyTarget(n_ctx=99, max_rows=64)
    paced = Paced(inner, Curve(1, 0), max_rows=16, clock=lambda: 0.0, until=lambda moment: None)
    assert (paced.n_ctx, paced.sequences, paced.unified, paced.max_rows) == (99, 4, True, 16)
    paced.decode(rows([4, 5, 6]))
    paced.truncate(0, 2)
    paced.copy(0, 1, 1)
    assert inner.cells[:2] == [[4, 5], [4]]
    assert (paced.logits(1) == logits_after([4, 5])).all()
    assert Paced(inner, Curve(1, 0)).max_rows == 64


def test_a_curve_prices_rows_as_a_calibration_would() -> None:
    costs = Curve(26, 1).costs
    assert [costs(count) for count in (1, 8, 33, 512)] == pytest.approx([27, 34, 59, 538])


@pytest.mark.parametrize("text", ["", "100", "a+b", "-1+3", "0+0", "100+-3"])
def test_a_curve_that_is_none_is_refused_by_name(text: str) -> None:
    with pytest.raises(StartError, match="--curve"):
        parse_curve(text)


def test_curves_are_read_as_they_are_written() -> None:
    assert parse_curve("100+3") == Curve(100, 3)
    for scenario in SCENARIOS:
        assert parse_curve(str(scenario.curve)) == scenario.curve


def script(tokens: int = 12) -> dict[int, Logits]:
    recording = Recording(prompt=(5, 6, 7), sampling=DEFAULT_SAMPLING, tokens=tokens)
    return record(ToyTarget(max_rows=2), [recording], frozenset((EOG,)))


def test_a_recorded_answer_is_replayed_in_any_widths_after_wrong_drafts() -> None:
    answer = plain_answer(job(sampling=DEFAULT_SAMPLING, max_tokens=12))
    target = Scripted(script(), n_ctx=64, sequences=2)
    assert target.n_vocab == VOCABULARY
    target.decode(rows([5, 6, 7]))
    done = 0
    for width in (1, 3, 2, 4):
        right = answer[done : done + width]
        wrong = (right[-1] + 1) % VOCABULARY
        target.decode(rows([*right, wrong], 3 + done))
        for row in range(width):
            expected = logits_after([5, 6, 7, *answer[: done + row + 1]])
            assert (target.logits(row) == expected).all()
        with pytest.raises(LlamaError, match="not recorded"):
            target.logits(width)
        done += width
        target.truncate(0, 3 + done)


def test_a_scripted_sequence_can_be_copied_but_not_jumped_or_branched() -> None:
    target = Scripted(script(), n_ctx=64, sequences=2)
    target.decode(rows([5, 6]))
    target.copy(0, 1, 2)
    target.decode(rows([7], 2, sequence=1))
    assert (target.logits(0) == logits_after([5, 6, 7])).all()
    for bad in (rows([7], 5), rows([7], 64)):
        with pytest.raises(LlamaError, match="does not follow"):
            target.decode(bad)
    branched = Rows()
    branched.add(7, 2, (0, 1), True)
    with pytest.raises(LlamaError, match="chains"):
        target.decode(branched)
    target.decode(rows([7], 2))  # what was refused changed nothing
    assert (target.logits(0) == logits_after([5, 6, 7])).all()
