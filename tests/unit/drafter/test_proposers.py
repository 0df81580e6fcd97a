"""Drafters with toy models: they run ahead, follow the target, and never say what nobody asked for."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.drafter.lookup_proposer import LookupProposer
from services.drafter.model_proposer import ModelProposer, confidences
from services.drafter.proposer import Draft, Opening, Path, join
from shared.law import prefix
from shared.law.sampling import Logits
from shared.wire.drafts import burst
from shared.wire.messages import Sampling, Site
from tests.examples import few
from tests.toys import EOG, VOCABULARY, ToyTarget, job, logits_after, plain_answer


def opening(
    prompt: tuple[int, ...] = (5, 6, 7), lead: int = 6, name: str = "r1", model: str = "", **sampling: float
) -> Opening:
    parameters = Sampling(seed=11, logit_bias=((EOG, -100.0),), **sampling)  # type: ignore[arg-type]
    return Opening(name, prompt, (), parameters, frozenset({EOG}), VOCABULARY, lead, model)


def answer_to(start: Opening, tokens: int = 60) -> list[int]:
    return plain_answer(job(prompt=start.prompt, max_tokens=tokens, sampling=start.sampling))


def run(proposer: ModelProposer | LookupProposer) -> list[Draft]:
    drafts: list[Draft] = []
    for _ in range(1000):
        if not proposer.busy:
            return drafts
        drafts += proposer.step()
    raise AssertionError("the drafter never rests")


def test_a_model_that_is_the_target_drafts_its_answer_up_to_the_lead() -> None:
    proposer = ModelProposer(ToyTarget())
    start = opening()
    proposer.open(start)
    drafts = run(proposer)
    answer = answer_to(start)
    assert [draft.tokens[0] for draft in drafts] == answer[:6]
    assert [draft.base for draft in drafts] == list(range(6))
    for draft in drafts:
        assert draft.prefix_hash == prefix.extend_all(prefix.EMPTY, [*start.prompt, *answer[: draft.base]])
        assert 0.5 <= draft.scores[0] <= 1.0


def test_a_commit_on_the_path_lets_it_run_further_ahead() -> None:
    proposer = ModelProposer(ToyTarget())
    start = opening()
    proposer.open(start)
    run(proposer)
    answer = answer_to(start)
    assert proposer.commit("r1", 0, tuple(answer[:4]), 6)
    assert [draft.tokens[0] for draft in run(proposer)] == answer[6:10]


def test_a_refusal_starts_it_anew_from_the_targets_token() -> None:
    target = ToyTarget()
    proposer = ModelProposer(target)
    start = opening()
    proposer.open(start)
    run(proposer)
    answer = answer_to(start)
    other = (answer[2] + 1) % VOCABULARY or 2
    assert proposer.commit("r1", 0, (*answer[:2], other), 6)
    drafts = run(proposer)
    assert drafts[0].base == 3
    assert drafts[0].prefix_hash == prefix.extend_all(prefix.EMPTY, [*start.prompt, *answer[:2], other])
    assert target.cells[0][: len(start.prompt) + 3] == [*start.prompt, *answer[:2], other]


def test_missed_commits_are_reported_and_repeated_ones_ignored() -> None:
    proposer = ModelProposer(ToyTarget())
    start = opening()
    proposer.open(start)
    run(proposer)
    answer = answer_to(start)
    assert not proposer.commit("r1", 3, (1, 2), 6)
    assert proposer.commit("r1", 0, tuple(answer[:2]), 6)
    assert proposer.commit("r1", 0, tuple(answer[:2]), 6)
    assert proposer.commit("r1", 1, tuple(answer[1:4]), 6)
    assert [draft.base for draft in run(proposer)] == [6, 7, 8, 9]


def test_what_a_verifier_waits_for_comes_in_one_message() -> None:
    assert [burst(lead, 7) for lead in (0, 3, 6)] == [7, 4, 1]
    assert [burst(lead, 0) for lead in (0, 2, 3, 9, 50)] == [1, 1, 2, 4, 6]
    proposer = ModelProposer(ToyTarget())
    proposer.open(opening(lead=20))
    assert proposer.burst == 1
    proposer.commit("r1", 0, (9, 9), 20, want=5)
    assert proposer.burst == 5


def test_no_lead_means_rest() -> None:
    proposer = ModelProposer(ToyTarget())
    proposer.open(opening())
    run(proposer)
    proposer.commit("r1", 0, (9, 9, 9), 0)
    assert not proposer.busy


def test_sessions_share_one_decode_per_step() -> None:
    target = ToyTarget(sequences=4)
    proposer = ModelProposer(target)
    for index in range(4):
        proposer.open(opening(prompt=(5, 6, index + 2), name=f"r{index}"))
    drafts = run(proposer)
    assert len(drafts) == 24
    assert len(target.decodes) == 6
    proposer.open(opening(name="one too many"))
    assert not proposer.busy


def test_a_prompt_longer_than_its_context_is_drafted_from_head_and_tail() -> None:
    target = ToyTarget(n_ctx=64)
    proposer = ModelProposer(target)
    prompt = tuple(2 + index % 60 for index in range(500))
    start = opening(prompt=prompt)
    proposer.open(start)
    drafts = run(proposer)
    assert len(drafts) == 6
    assert drafts[0].prefix_hash == prefix.extend_all(prefix.EMPTY, prompt)
    assert target.cells[0][:16] == list(prompt[:16])
    assert target.cells[0][16 : len(target.cells[0]) - 5] == list(prompt[-(32 - 6) :])
    offset = 0
    for _ in range(20):  # and goes on when the window fills up
        assert proposer.commit("r1", offset, (3, 4, 5), 6)
        offset += 3
        assert run(proposer)


@settings(max_examples=few(60))
@given(st.integers(0, 10_000), st.sampled_from([0.0, 1.0]), st.sampled_from([(0, 0), (1, 0), (3, 0), (7, 0), (0, 5)]))
def test_whatever_the_target_decides_drafts_hang_from_real_prefixes(
    seed: int, presence: float, layout: tuple[int, int]
) -> None:
    """The toy target checks meanwhile that every row has the past that its sequence says."""
    source = random.Random(seed)
    branches, window = layout
    target = ToyTarget(n_ctx=96, branches=branches, sharpness=source.choice([0.5, 2.0]), window=window)
    proposer = ModelProposer(target)
    start = opening(lead=9, presence_penalty=presence)
    proposer.open(start)
    committed: list[int] = []
    paths = {prefix.extend_all(prefix.EMPTY, start.prompt): list[int]()}
    for _ in range(15):
        for _ in range(source.randrange(12)):
            if proposer.busy:
                for draft in proposer.step():
                    path = paths[draft.prefix_hash]
                    assert len(path) == draft.base
                    assert set(draft.parents) <= {-1}
                    for token in draft.tokens:
                        paths[prefix.extend(draft.prefix_hash, token)] = [*path, token]
        known = [path for path in paths.values() if path[: len(committed)] == committed]
        right = source.choice(known)[len(committed) :]
        news = [*right, source.randrange(2, VOCABULARY)][: source.randrange(1, 5)]
        assert proposer.commit("r1", len(committed), tuple(news), 9)
        for token in news:
            committed.append(token)
            paths[prefix.extend_all(prefix.EMPTY, [*start.prompt, *committed])] = list(committed)
    proposer.close("r1")
    assert all(not cells for cells in target.cells[4:]), "branches are emptied in the end"


def test_where_it_is_unsure_the_second_best_is_drafted_too_and_waits_for_the_refusal() -> None:
    proposer = ModelProposer(ToyTarget(branches=3, sharpness=0.5))
    start = opening(lead=12)
    proposer.open(start)
    drafts = {draft.prefix_hash: draft for draft in run(proposer)}
    first = drafts[prefix.extend_all(prefix.EMPTY, start.prompt)]
    second = first.tokens[1]
    after = prefix.extend(first.prefix_hash, second)
    assert after in drafts, "what follows the second guess was drafted before any verdict"
    proposer.commit("r1", 0, (second,), 12)
    assert all(draft.base > 1 for draft in run(proposer))


def test_what_is_hardly_ever_needed_is_not_drafted() -> None:
    eager, thrifty = ModelProposer(ToyTarget(branches=7)), ModelProposer(ToyTarget(branches=7))
    eager.open(opening(lead=40))
    thrifty.open(replace(opening(lead=40), worth=0.3))
    many, few = run(eager), run(thrifty)
    assert len(many) == 40
    assert 0 < len(few) < 20
    assert {draft.prefix_hash for draft in few} <= {draft.prefix_hash for draft in many}


def test_without_branches_a_session_drafts_one_chain() -> None:
    proposer = ModelProposer(ToyTarget(sharpness=0.5))
    proposer.open(opening(lead=12))
    drafts = run(proposer)
    for one, other in pairwise(drafts):
        assert other.prefix_hash == prefix.extend(one.prefix_hash, one.tokens[0])


def test_confidences_fall_with_rank_and_the_first_two_share_one() -> None:
    found = confidences([(7, 1.0), (3, 0.0), (5, -1.0)])
    assert [token for token, _ in found] == [7, 3, 5]
    assert found[0][1] + found[1][1] == pytest.approx(1.0)
    assert found[0][1] == pytest.approx(1 / (1 + math.exp(-1)))
    assert found[2][1] == pytest.approx(math.exp(-2) / (1 + math.exp(-1) + math.exp(-2)))
    assert confidences([(4, 2.0)]) == [(4, 1.0)]


def test_drafts_that_hang_together_travel_as_one_tree() -> None:
    start = prefix.EMPTY
    one = Draft("r", 0, start, (1, 2), (0.9, 0.1), (-1, -1))
    below_second = Draft("r", 1, prefix.extend(start, 2), (3,), (0.5,))
    below_that = Draft("r", 2, prefix.extend_all(start, (2, 3)), (4, 5), (0.6, 0.4))
    elsewhere = Draft("r", 9, 99, (6,), (0.5,))
    other = Draft("s", 0, start, (7,), (0.5,))
    assert join([one, below_second, other, below_that, elsewhere]) == [
        Draft("r", 0, start, (1, 2, 3, 4, 5), (0.9, 0.1, 0.5, 0.6, 0.4), (-1, -1, 1, 2, 3)),
        other,
        elsewhere,
    ]
    chain = [Draft("r", 0, start, (1,), (0.5,)), Draft("r", 1, prefix.extend(start, 1), (2,), (0.5,))]
    assert join(chain) == [Draft("r", 0, start, (1, 2), (0.5, 0.5))]


def test_a_path_knows_what_of_it_is_still_right() -> None:
    path = Path((1, 2), (3,))
    path.guess(4)
    path.guess(5)
    assert (path.commit(1, (4,)), path.committed, path.lead) == (3, 2, 1)
    assert (path.commit(2, (6, 7)), path.output, path.committed) == (2, [3, 4, 6, 7], 4)
    assert path.commit(9, (1,)) is None
    assert path.hash(4) == prefix.extend_all(prefix.EMPTY, [1, 2, 3, 4, 6, 7])


def test_a_context_longer_than_the_drafters_is_read_in_part_and_again_only_once_much_came() -> None:
    target = ToyTarget(n_ctx=64, sequences=1)
    proposer = ModelProposer(target)
    prompt = tuple(2 + index % 40 for index in range(200))
    proposer.open(opening(prompt, lead=4))
    run(proposer)
    read = target.cells[0][: 64 // 4]
    assert read == list(prompt[:16]), "the beginning"
    assert tuple(target.cells[0][16 : 16 + 28]) == prompt[-28:], "and the end"
    rows = []
    for offset in range(40):
        before = len(target.decodes)
        assert proposer.commit("r1", offset, (2 + offset % 40,), 4)
        run(proposer)
        rows.append(sum(map(len, target.decodes[before:])))
    assert sum(count > 16 for count in rows) <= 3, "it seldom reads its view again"
    assert max(rows) <= 64


def test_a_drafter_told_to_rest_computes_nothing_however_much_is_committed() -> None:
    """The verifier asks for no lead where guesses do not pay, such as from a part of the context only."""
    target = ToyTarget(n_ctx=64, sequences=1)
    proposer = ModelProposer(target)
    prompt = tuple(2 + index % 40 for index in range(200))
    proposer.open(opening(prompt, lead=4))
    run(proposer)
    done = len(target.decodes)
    for offset in range(100):
        assert proposer.commit("r1", offset, (2 + offset % 40,), 0)
        assert not proposer.busy
    assert len(target.decodes) == done
    assert proposer.commit("r1", 100, (5,), 4)
    assert run(proposer), "asked again, it drafts again"


# ---------------------------------------------------------------- lookup


def test_lookup_drafts_from_the_prompt_and_follows_commits() -> None:
    proposer = LookupProposer()
    text = tuple(range(10, 40))
    proposer.open(opening(prompt=(*text, 5, *text[:6]), lead=20))
    first = run(proposer)
    assert first[0].tokens == text[6:26]
    assert proposer.commit("r1", 0, text[6:7], 20)
    assert run(proposer) == []  # still on its path, and far enough ahead
    assert proposer.commit("r1", 1, (63, *text[20:24]), 20)
    again = run(proposer)[0]
    assert (again.base, again.tokens[0]) == (6, text[24])


def test_lookup_remembers_what_other_requests_answered() -> None:
    proposer = LookupProposer()
    proposer.open(opening(name="old"))
    proposer.commit("old", 0, (20, 21, 22, 23, 24, 25), 8)
    proposer.close("old")
    proposer.open(opening(prompt=(50, 20, 21, 22), name="new"))
    assert run(proposer)[0].tokens[:3] == (23, 24, 25)


def test_no_caller_s_text_is_another_s_draft() -> None:
    proposer = LookupProposer()
    for caller, secret in (("one", (23, 24, 25)), ("two", (33, 34, 35)), ("", (43, 44, 45))):
        start = replace(opening(prompt=(50, 20, 21, 22), name=caller), caller=caller)
        proposer.open(start)
        assert run(proposer) == []
        proposer.commit(caller, 0, secret, 8)
        proposer.close(caller)
        proposer.open(replace(start, request_id="again"))
        assert run(proposer)[0].tokens[:3] == secret
        proposer.close("again")


def test_a_request_that_shares_nothing_copies_itself_alone_and_is_never_copied() -> None:
    proposer = LookupProposer()
    said = (20, 21, 22, 23, 24, 25)
    for share in (True, False):
        proposer.open(replace(opening(name="old"), share=share))
        proposer.commit("old", 0, (*said, 30 + share), 8)
        proposer.close("old")
    proposer.open(replace(opening(prompt=(50, 20, 21, 22), name="private"), share=False))
    assert run(proposer) == []
    proposer.open(replace(opening(prompt=(*said, 50, 20, 21, 22), name="itself"), share=False))
    assert run(proposer)[0].tokens[:3] == (23, 24, 25)
    proposer.open(opening(prompt=(50, 23, 24, 25), name="new"))
    assert run(proposer)[0].tokens[0] == 31  # of the one that shared


def test_lookup_stops_at_the_end_of_an_answer_and_at_the_common_vocabulary() -> None:
    proposer = LookupProposer()
    proposer.open(opening(prompt=(20, 21, 22, 23, EOG, 24, 20, 21, 22)))
    assert run(proposer)[0].tokens == (23, EOG)
    proposer.open(opening(prompt=(20, 21, 22, 23, VOCABULARY, 24, 20, 21, 22), name="r2"))
    assert run(proposer)[0].tokens == (23,)


def test_lookup_proposes_two_continuations_where_places_disagree() -> None:
    proposer = LookupProposer()
    both = (20, 21, 22, 23, 30, 31, 32, 33, 5, 20, 21, 22, 23, 40, 41, 42, 43)
    proposer.open(opening(prompt=(*both, 20, 21, 22, 23), lead=8))
    latest, earlier = run(proposer)
    assert (latest.base, latest.tokens[:4]) == (0, (40, 41, 42, 43))
    assert (earlier.base, earlier.tokens[:4]) == (0, (30, 31, 32, 33))
    assert earlier.prefix_hash == latest.prefix_hash
    assert max(latest.scores[0], earlier.scores[0]) < 0.5


def test_an_alternative_hangs_from_the_guess_where_places_part() -> None:
    proposer = LookupProposer()
    prompt = (20, 21, 22, 23, 30, 31, 32, 33, 5, 20, 21, 22, 23, 30, 31, 42, 43, 20, 21, 22, 23)
    proposer.open(opening(prompt=prompt, lead=6))
    chain, other = run(proposer)
    assert chain.tokens[:3] == (30, 31, 42)
    assert (other.base, other.tokens[:2]) == (2, (32, 33))
    assert other.prefix_hash == prefix.extend_all(prefix.EMPTY, [*prompt, 30, 31])


def test_nothing_hangs_behind_the_end_of_an_answer() -> None:
    proposer = LookupProposer()
    prompt = (20, 21, 22, EOG, 30, 31, 5, 20, 21, 22, EOG, 40, 41, 5, 20, 21, 22)
    proposer.open(opening(prompt=prompt, lead=6))
    assert [draft.tokens for draft in run(proposer)] == [(EOG,)]


def test_a_copy_goes_on_behind_an_edit() -> None:
    proposer = LookupProposer()
    text = tuple(range(2, 60))
    proposer.open(opening(prompt=(*text, 61, *text[:10]), lead=20))
    assert run(proposer)[0].tokens[:3] == text[10:13]
    proposer.commit("r1", 0, (*text[10:12], 62), 20)  # instead of text[12]
    assert run(proposer)[0].tokens[:3] == text[13:16]


def test_models_share_nothing() -> None:
    proposer = LookupProposer()
    for model in ("big", "other"):
        proposer.open(opening(prompt=(50, 20, 21, 22, 23), name=model, model=model))
        assert run(proposer) == []
        proposer.commit(model, 0, (24, 25, 26), 8)
        proposer.close(model)
        proposer.open(opening(prompt=(51, 20, 21, 22, 23), name="again", model=model))
        assert run(proposer)[0].tokens[:3] == (24, 25, 26)
        proposer.close("again")


def test_a_model_that_breaks_on_one_request_drafts_on_for_the_others() -> None:
    def model(tokens: Sequence[int]) -> Logits:
        logits = logits_after(tokens)
        if tokens[0] == 40:
            logits[3] = math.nan
        return logits

    target = ToyTarget(model=model)
    proposer = ModelProposer(target)
    proposer.open(opening((40, 6, 7), name="r1"))
    proposer.open(good := opening(name="r2"))
    drafts = run(proposer)
    assert {draft.request_id for draft in drafts} == {"r2"}
    assert [draft.tokens[0] for draft in drafts] == answer_to(good)[:6]
    assert proposer.sessions == 1
    assert proposer.commit("r1", 0, (5, 6), 6), "commits of the request that it gave up change nothing"
    assert target.cells[0] == []


def test_a_drafter_has_all_cores_in_its_turn_and_its_share_while_the_target_decodes() -> None:
    target = ToyTarget()
    proposer = ModelProposer(target, site=Site(threads=1, most=4))
    proposer.open(opening(lead=2))
    run(proposer)
    assert target.threads == [1], "the target reads the prompt meanwhile"
    answer = answer_to(opening())
    proposer.commit("r1", 0, tuple(answer[:3]), 3, 3)
    run(proposer)
    assert target.threads == [1, 4], "the verifier waits for all that it may draft"
    proposer.commit("r1", 3, tuple(answer[3:7]), 9, 3)
    run(proposer)
    assert target.threads == [1, 4, 1], "it may draft more than the verifier waits for"


def test_the_last_draft_of_a_turn_says_that_nothing_follows() -> None:
    proposer = ModelProposer(ToyTarget())
    proposer.open(opening(lead=3))
    assert [draft.rests for draft in run(proposer)] == [False, False, True]
    assert join([Draft("r1", 0, 7, (1,), (0.9,)), Draft("r1", 1, prefix.extend(7, 1), (2,), (0.9,), rests=True)])[
        0
    ].rests


def test_a_turn_ends_early_where_no_draft_is_worth_its_step() -> None:
    """The target, which waits meanwhile, is told so, and does not wait for the rest."""
    proposer = ModelProposer(ToyTarget())
    proposer.open(opening(lead=0))
    proposer.commit("r1", 0, (9,), 8, 8, worth=0.9)
    last = run(proposer)[-1]
    assert last.rests
    assert 0 < last.base < 8
    proposer.commit("r1", 1, (10,), 8, 8)
    assert len(run(proposer)) == 8, "a commit without a price brings back the one of the opening"
