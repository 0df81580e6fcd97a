"""The emulated target, its language, the scripted drafter, and what is made of the rounds' times."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from bench.paced import bigram
from bench.paced.apart import clash
from bench.paced.asking import Asked
from bench.paced.emulation import CONTESTANTS, SCENARIOS
from bench.paced.found import AnswerFigures, Sample, findings, share
from bench.paced.scripted import Guesses, ScriptedProposer
from bench.paced.target import Curve, Emulated, parse_curve
from bench.paced.watch import RecordReader, SteadyRound, Watch
from services.drafter.proposer import Opening
from services.launcher.fleet.stack import StackError
from shared.errors import StartError
from shared.law import sampling
from shared.model.rows import LlamaError, Rows
from shared.wire.messages import Sampling
from tests.toys import job
from tests.unit.verifier.bench import Bench

TABLE = np.random.default_rng(3).standard_normal((4, 50), np.float32)


class Clock:
    """Time that passes only in waits."""

    def __init__(self) -> None:
        self.now = 5.0

    def __call__(self) -> float:
        return self.now

    def until(self, moment: float) -> None:
        self.now = max(self.now, moment)


def rows(tokens: list[int]) -> Rows:
    made = Rows()
    for position, token in enumerate(tokens):
        made.add(token, position, (0,), True)
    return made


def emulated(curve: Curve, clock: Clock) -> Emulated:
    return Emulated(TABLE, curve, n_ctx=99, sequences=2, clock=clock, until=clock.until)


@pytest.mark.parametrize("count", [1, 2, 16])
def test_a_decode_takes_what_the_curve_says(count: int) -> None:
    clock = Clock()
    emulated(Curve(100, 3), clock).decode(rows(list(range(count))))
    assert (clock.now - 5.0) * 1000 == pytest.approx(100 + 3 * count)


def test_the_rows_of_a_decode_are_those_after_its_tokens() -> None:
    target = emulated(Curve(1, 0), Clock())
    target.decode(rows([7, 2, 4]))
    assert [target.logits(row).tolist() for row in range(3)] == [TABLE[state].tolist() for state in (3, 2, 0)]
    assert (target.n_vocab, target.n_ctx, target.sequences) == (50, 99, 2)


@pytest.mark.parametrize("count", [0, 513])
def test_a_decode_of_no_rows_or_too_many_is_refused_and_takes_no_time(count: int) -> None:
    clock = Clock()
    with pytest.raises(LlamaError, match=f"not {count}"):
        emulated(Curve(10, 1), clock).decode(rows([1] * count))
    assert clock.now == 5.0


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


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_answer_that_the_script_knows_is_the_targets(temperature: float) -> None:
    law = Sampling(seed=5, temperature=temperature)
    target = emulated(Curve(1, 0), Clock())
    drawn = [9]
    for offset in range(12):
        target.decode(rows([drawn[-1]]))
        drawn.append(sampling.draw(sampling.law(target.logits(0), law), law.seed, offset).token)
    assert list(islice(bigram.answer(TABLE, 9, law), 12)) == drawn[1:]


@pytest.mark.slow
def test_a_real_model_of_the_language_computes_the_drafts_logits(tmp_path: Path) -> None:
    from shared.model.llama.context import Context
    from shared.model.llama.model import Model

    path = bigram.draft_model(tmp_path / "bigram.gguf")
    table = bigram.table()
    model = Model(path)
    context = Context(model, n_ctx=64, sequences=1, unified=True, threads=1, max_outputs=8)
    tokens = [5, 70, 151_935]
    context.decode(rows(tokens))
    assert model.vocabulary.tokenize("a b") != []
    assert model.vocabulary.eog == (bigram.END,)
    for row, token in enumerate(tokens):
        found, wanted = context.logits(row), bigram.after(table, token)
        likely = wanted >= 6.0
        assert np.abs(found - wanted)[~likely].max() < 0.1
        assert 0.2 < np.abs(found - wanted)[likely].mean() < 1.2  # it is unlike the target, but not much
    context.close()
    model.close()


def opening(seed: int) -> Opening:
    law = Sampling(seed=seed, temperature=1.0)
    return Opening("r", (1, 2), (), law, frozenset({0}), 50, lead=12)


def test_the_scripted_drafter_goes_on_behind_what_was_decided() -> None:
    proposer = ScriptedProposer([Guesses(seed=5, temperature=1.0, tokens=tuple(range(10, 30)), right=0.8)])
    proposer.open(opening(5))
    [first] = proposer.step()
    assert (first.base, first.tokens, first.scores) == (0, tuple(range(10, 18)), (0.8,) * 8)
    assert proposer.commit("r", 0, (10, 11, 40), lead=4)  # 12 was wrong
    [second] = proposer.step()
    assert (second.base, second.tokens) == (3, (13, 14, 15, 16))
    assert not proposer.busy
    assert proposer.commit("r", 3, tuple(range(13, 30)), lead=12)
    assert proposer.step() == []  # the script has ended


def test_the_scripted_drafter_is_silent_about_requests_that_it_does_not_know() -> None:
    proposer = ScriptedProposer([])
    proposer.open(opening(5))
    assert (proposer.sessions, proposer.busy, proposer.commit("r", 0, (1,), lead=4)) == (0, False, True)


def test_a_watch_says_where_the_time_of_steady_rounds_went(tmp_path: Path) -> None:
    bench = Bench(drafters=())  # a decode of one row takes 10 ms of the bench's clock
    record = tmp_path / "rounds.jsonl"
    reader = RecordReader(record)
    Watch(bench.engine, record, clock=lambda: bench.now)
    bench.admit(job("a", prompt=(5, 6, 7), max_tokens=4))
    bench.finish(lambda: bench.spend(2.0))
    found = reader.fresh()
    assert [(one.rows, one.tokens) for one in found] == [(1, 1)] * 2  # neither the prompt's round nor the last one
    for one in found:
        assert (one.wall, one.decode, one.beside) == pytest.approx((12.0, 10.0, 2.0))
    assert reader.fresh() == []


def steady(wall: float, wait: float = 0.0, rows: int = 2, step: float = 0.0) -> SteadyRound:
    return SteadyRound(
        rows=rows, tokens=2, wall=wall, decode=11.5, take=0.0, plan=0.1, wait=wait, walk=0.2, settle=0.1, step=step
    )


def test_a_decode_share_counts_late_decodes_against_us_and_waits_as_asked() -> None:
    rounds = [steady(12.0), steady(16.0, wait=4.0)]
    assert share(Curve(10, 0.5), rounds) == pytest.approx(22 / 28)
    assert share(Curve(10, 0.5), rounds, waits=False) == pytest.approx(22 / 24)


def sample(name: str, wall: float, busy: float = 0.1, step: float = 0.0) -> Sample:
    found = AnswerFigures(
        rounds=[steady(wall, step=step)],
        tokens=2,
        tokens_per_second=90.0,
        first_token_ms=1.0,
        cached=0,
        delayed={"verifier": 0.01, "drafter": 0.2},
        busy={"drafter": busy, "gateway": 0.05},
    )
    return Sample(name=name, temperature=0.0, repetition=0, found=found)


def test_only_a_drafter_that_keeps_up_is_held_to_the_share_and_a_full_core_is_called_the_limit() -> None:
    samples = [sample("scripted", 11.5, step=0.1), sample("real", 30.0, busy=0.93), sample("chains", 30.0, step=16.0)]
    wanted, trees = ("scripted",), ("real", "chains")
    result = findings("8b", Curve(10, 0.5), 0.9, samples, wanted=wanted, alike="scripted", trees=trees)
    shares = {one.opponent: (one.ratio.value, one.reached) for one in result.findings if one.what == "decode share"}
    assert {name: reached for name, (_, reached) in shares.items()} == {"scripted": True, "real": None, "chains": None}
    assert [value for value, _ in shares.values()] == pytest.approx([11 / 11.5, 11 / 30, 11 / 30])
    said = [note.rpartition(": ")[2] for note in result.notes[3:]]
    # The last one's core is idle, but 16 ms a token give 1.9 drafts in 30 ms, and 2 would be used.
    limits = ["the core is not the limit", "the core is the limit", "the core is the limit"]
    assert said == [f"{limit}, as far as a core held by others can tell" for limit in limits]
    assert result.notes[0].endswith("others held the drafter's core 20% of the time, so the share is a lower bound")


def test_two_sides_on_one_core_are_refused() -> None:
    clash({0}, {"drafter": {1}, "gateway": {1, 2}})
    with pytest.raises(StackError, match="the gateway may run on the verifier's core 0"):
        clash({0}, {"drafter": {1}, "gateway": {0, 1}})


def test_contestants_ask_with_seeds_of_their_own_but_trees_and_chains_with_the_same() -> None:
    asked = [one.asks((1,), 0.0, 8).seeded(repetition) for one in CONTESTANTS for repetition in range(3)]
    assert len({one.seed for one in asked}) == 3 * (len(CONTESTANTS) - 1)
    assert isinstance(asked[0], Asked)
    assert asked[0].body()["cache_prompt"] is True
