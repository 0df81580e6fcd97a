"""A target and a drafter on the same cores: who computes when, by measured costs, and what the drafter is told."""

from functools import cache

from msgspec.structs import replace

from services.verifier import hints
from services.verifier.engine import LEAD, Engine
from services.verifier.sharing import NEAR_PROBE_ROUNDS, PROBE_LEAD, PROBE_REQUESTS
from services.verifier.turns import LOOK_EVERY, Crew, Mode, Partner, Turns
from shared.law import prefix
from shared.law.speedup import RowCosts
from shared.wire.jobs import Claim
from shared.wire.messages import Commit, Open, Proposal, Sampling, Site
from tests.toys import EOG, ToyTarget, drafter_card, job, plain_answer

HERE = Site(machine="boot-1", cores="3", threads=1, most=2)
WHOLE = {1: 100.0, 8: 200.0, 64: 900.0}
HALF = {1: 180.0, 8: 360.0, 64: 1600.0}
REST = Commit(request_id="r1", epoch=1, base=0, tokens=(), lead=0)
REQUEST = job(max_tokens=400, sampling=Sampling(seed=5, logit_bias=((EOG, -100.0),)))
GOOD = Partner(acceptance=0.8, hop_ms=1.0, step_ms=6.0, beside_step_ms=10.0)


def turns(part: dict[int, float] = HALF) -> Turns:
    return Turns(Crew(2, RowCosts(WHOLE)), Crew(1, RowCosts(part)))


def test_where_half_the_cores_take_nearly_twice_as_long_target_and_drafter_take_turns() -> None:
    choice = turns()
    choice.look(GOOD, 1)
    assert choice.mode is Mode.TURNS
    assert choice.costs(1) == 100.0


def test_where_the_target_loses_little_beside_a_slow_drafter_it_drafts_ahead() -> None:
    choice = turns({1: 104.0, 8: 208.0, 64: 930.0})
    choice.look(Partner(acceptance=0.8, hop_ms=1.0, step_ms=25.0, beside_step_ms=30.0), 1)
    assert choice.mode is Mode.BESIDE
    assert choice.costs(1) == 104.0


def test_without_cores_for_both_at_once_they_take_turns_whatever_it_costs() -> None:
    choice = Turns(Crew(1, RowCosts(WHOLE)))
    choice.look(Partner(0.8, 1.0, 25.0, 30.0, fits=False), 1)
    assert choice.mode is Mode.TURNS


def test_a_mode_stays_for_some_rounds_and_until_the_other_one_is_clearly_better() -> None:
    choice = turns({1: 104.0, 8: 208.0, 64: 930.0})
    choice.look(GOOD, 1)
    before = choice.mode
    slow = Partner(acceptance=0.8, hop_ms=1.0, step_ms=60.0, beside_step_ms=20.0)
    for _ in range(LOOK_EVERY - 1):
        choice.look(slow, 1)
        assert choice.mode is before
    choice.look(slow, 1)
    assert choice.mode is Mode.BESIDE


def test_drafters_that_leave_leave_the_target_all_cores() -> None:
    choice = turns()
    choice.look(GOOD, 1)
    choice.look(None, 1)
    assert choice.mode is Mode.APART
    assert choice.crew(drafting=False).threads == 2


def test_a_draft_must_pay_for_its_step_and_its_row() -> None:
    choice = turns()
    rate = 1 / 100.0  # plain decoding
    row = (WHOLE[8] - WHOLE[1]) / 7
    assert choice.worth(step_ms=6.0, rate=0.0, requests=1) == min(0.9, rate * (6.0 + (choice.costs(9) - 100.0) / 8))
    assert choice.worth(6.0, 2 * rate, 1) > choice.worth(6.0, rate, 1), "time is worth more"
    assert choice.worth(6.0, rate, 2) < choice.worth(6.0, rate, 1) + row * rate, "two requests share a step"


@cache
def answer() -> list[int]:
    """What the target says, drawn without an engine."""
    return plain_answer(REQUEST, n_ctx=600, sharpness=6.0)


class Desk:
    """An engine on two cores that a drafter shares; only decodes and tests move the clock."""

    def __init__(self, site: Site = HERE, whole: dict[int, float] = WHOLE, step_ms: float = 6.0) -> None:
        self.now = 0.0
        costs = RowCosts(whole)
        self.target = ToyTarget(took=lambda rows: self.spend(costs(rows)), sharpness=6.0, n_ctx=600)
        part = Crew(1, RowCosts(HALF))
        self.engine = Engine(
            self.target, RowCosts(whole), [EOG], clock=lambda: self.now / 1000, site=HERE, part=part, trees=False
        )
        card = replace(drafter_card("d"), site=site, step_ms=step_ms, beside_step_ms=step_ms * 5 / 3)
        self.engine.drafters.update([card])
        self.told = REST
        self.opened: list[Open] = []
        self.start()

    def start(self) -> None:
        """A request, the only one."""
        for generation in list(self.engine.running):
            self.engine.drop(generation)
        claim = Claim(job=REQUEST, epoch=1, committed=0, remaining_ms=1 << 40)
        self.generation = self.engine.admit(claim, [])
        self.engine.reassign()

    def spend(self, ms: float) -> None:
        self.now += ms

    def round(self) -> Commit:
        """A round that waits for nothing more; what the drafter is told after it."""
        decoded = self.engine.run(self.engine.plan(may_wait=False))
        [gain] = self.engine.finish(decoded)
        assert gain.chunk is not None
        found = hints.decided(gain, gain.chunk.tokens, self.engine, "v", "cpu")
        self.opened += [hint for _, hint in found if isinstance(hint, Open)]
        self.told = next((hint for _, hint in found if isinstance(hint, Commit)), REST)
        return self.told

    def answer(self, count: int, right: bool = True, batch: int = 0) -> None:
        """The drafter proposes so many tokens after the committed ones, which the target will draw or not."""
        generation = self.generation
        committed = generation.context[len(generation.job.prompt) :]
        tokens = self.truth(count) if right else [(self.truth(1)[0] + 1) % 60 + 2] * count
        proposal = Proposal(
            request_id="r1", epoch=1, base=generation.offset, tokens=tuple(tokens), scores=(0.9,) * count,
            prefix_hash=prefix.extend_all(prefix.EMPTY, [*generation.job.prompt, *committed]), drafter="d",
            step_us=6000, batch=batch,
        )  # fmt: skip
        self.engine.take([proposal], self.now)

    def truth(self, count: int) -> list[int]:
        offset = self.generation.offset
        return answer()[offset : offset + count]

    def settle(self) -> None:
        """The drafter has read the prompt and was right so far."""
        for _ in range(6):
            self.round()
            self.answer(max(1, self.told.want))


def test_a_drafter_in_its_turn_is_told_to_make_what_the_verifier_waits_for_and_then_to_rest() -> None:
    desk = Desk()
    desk.settle()
    told = desk.round()
    assert told.lead == told.want > 1
    assert 0.0 < told.worth < 1.0, "it stops where a draft would not pay"
    assert desk.engine.plan().wait_ms > 0
    desk.spend(told.want * 6.0)
    desk.answer(told.want - 1)
    round = desk.engine.plan()
    assert not round.wait_ms, "it said that nothing follows"
    assert len(round.rows) == told.want


def test_the_target_has_all_cores_whenever_it_decodes_except_while_the_drafter_reads_the_prompt() -> None:
    desk = Desk()
    desk.round()
    desk.round()
    assert desk.target.threads == [1]
    desk.answer(1)
    for _ in range(8):
        desk.round()
        desk.answer(max(1, desk.told.want))
    assert desk.target.threads == [1, 2]


def test_a_drafter_reads_the_prompt_after_the_target_so_that_the_first_token_is_not_late() -> None:
    desk = Desk()
    assert not desk.engine.sharing.opens(desk.generation, "d")
    desk.round()
    [opened] = desk.opened
    assert list(opened.committed) == answer()[:1]
    assert opened.lead == PROBE_LEAD
    assert desk.target.threads == [], "the target read with all cores"


def test_a_drafter_that_leaves_before_it_was_asked_is_not_asked() -> None:
    desk = Desk()
    desk.engine.drafters.update([])
    desk.round()
    assert not desk.opened


def test_a_drafter_that_does_not_pay_reads_one_prompt_in_eight() -> None:
    desk = Desk()
    for _ in range(20):  # until that is known
        desk.start()
        for _ in range(6):
            desk.round()
            if desk.told.lead:
                desk.answer(desk.told.lead, right=False)
    desk.opened.clear()
    for _ in range(3 * PROBE_REQUESTS):
        desk.start()
        for _ in range(3):
            desk.round()
    assert len(desk.opened) == 3


def test_a_drafter_whose_steps_take_as_long_as_the_targets_is_not_tried() -> None:
    desk = Desk(step_ms=97.0)  # even if it were always right, two tokens would take 97 + 114 ms, and 100 each alone
    for _ in range(2 * PROBE_REQUESTS):
        desk.start()
        for _ in range(3):
            desk.round()
    assert not desk.opened
    assert desk.target.threads == [], "the target always had all cores"


def test_a_drafter_is_tried_if_it_would_pay_were_it_always_right() -> None:
    desk = Desk(step_ms=60.0)
    desk.round()
    assert desk.opened


def test_a_drafter_that_falls_silent_holds_up_one_round_and_no_longer_than_planned() -> None:
    desk = Desk()
    desk.settle()
    told = desk.round()
    wait_ms = desk.engine.plan().wait_ms
    assert told.want * 6.0 <= wait_ms <= 2 * WHOLE[1]
    desk.spend(wait_ms)
    desk.round()
    for _ in range(20):
        assert not desk.engine.plan().wait_ms
        desk.round()
    assert desk.target.threads == [], "the target had all cores throughout"


def test_a_drafter_that_never_answers_leaves_the_target_all_cores_soon() -> None:
    desk = Desk()
    for _ in range(20):
        assert not desk.engine.plan().wait_ms
        desk.round()
    assert desk.target.threads == [1, 2]


def test_a_drafter_that_is_never_right_rests_and_leaves_the_target_all_cores() -> None:
    desk = Desk()
    for _ in range(60):
        desk.round()
        if desk.told.lead:
            desk.answer(desk.told.lead, right=False)
    drafted, waits = 0, 0
    for _ in range(256):
        waits += desk.engine.plan().wait_ms > 0
        drafted += desk.round().lead
    assert not waits
    assert drafted <= PROBE_LEAD * NEAR_PROBE_ROUNDS, "it is tried again at times, and cheaply"
    assert desk.target.threads == [1, 2]


def test_drafters_on_other_cores_or_machines_draft_ahead_as_ever() -> None:
    for site in (replace(HERE, machine="boot-2"), replace(HERE, cores="c")):
        desk = Desk(site)
        desk.settle()
        told = desk.round()
        assert (told.lead, told.worth) == (LEAD, 0.0)
        assert desk.engine.sharing.turns.mode is Mode.APART
        assert desk.target.threads == []


def test_turns_change_when_tokens_come_and_not_which() -> None:
    desk = Desk()
    for index in range(40):
        desk.round()
        desk.answer(max(1, desk.told.want), right=index % 3 > 0)
    output = desk.generation.context[len(desk.generation.job.prompt) :]
    assert output == answer()[: len(output)]
    assert len(output) > 60
