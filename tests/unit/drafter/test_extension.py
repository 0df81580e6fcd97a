"""Copies behind a model's guesses: free, told once, apart from what the model thinks itself."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.drafter.draft_tree import DraftNode
from services.drafter.extension import Continuation, Extension
from services.drafter.model_proposer import ModelProposer
from services.drafter.proposer import Draft, Opening, join
from services.verifier.trie import Guess, Trie
from shared.law import prefix
from shared.law.acceptance import COPIED, Acceptance
from shared.law.sampling import Logits
from shared.wire.messages import Sampling
from tests.examples import few
from tests.toys import EOG, VOCABULARY, ToyTarget, logits_after

TEXT = tuple(range(2, 42))
AGAIN = (*TEXT, 60, 61, *TEXT[:6])  # the prompt of a session whose answer goes on with TEXT[6:]


def opening(prompt: Sequence[int] = AGAIN, lead: int = 30, n_vocab: int = VOCABULARY) -> Opening:
    greedy = Sampling(seed=1, temperature=0.0)
    return Opening("r1", tuple(prompt), (), greedy, frozenset({EOG}), n_vocab, lead)


def reciting(tokens: Sequence[int]) -> Logits:
    """A model that mostly knows the text, and is told nothing about copies."""
    logits = logits_after(tokens)
    if tokens[-1] in TEXT[:-1]:
        logits[tokens[-1] + 1] += 20.0
    return logits


def child(tokens: Sequence[int]) -> DraftNode:
    """The node at the end of AGAIN and `tokens`."""
    offset = len(tokens) - 1
    return DraftNode(tokens[-1], offset, prefix.extend_all(prefix.EMPTY, (*AGAIN, *tokens)), parent=None)


def guessed(drafts: Sequence[Draft], start: Opening) -> set[tuple[int, ...]]:
    """Every path of the drafts, from the committed end on."""
    paths = {prefix.extend_all(prefix.EMPTY, start.prompt): tuple[int, ...]()}
    for draft in drafts:
        hashes = [draft.prefix_hash]
        for token, parent in zip(draft.tokens, draft.parents or range(-1, len(draft.tokens) - 1), strict=True):
            above = hashes[parent + 1]
            hashes.append(prefix.extend(above, token))
            paths[hashes[-1]] = (*paths[above], token)
    return set(paths.values())


def test_one_step_of_the_model_brings_a_whole_copy() -> None:
    target = ToyTarget(model=reciting)
    proposer = ModelProposer(target)
    start = opening()
    proposer.open(start)
    (draft,) = proposer.step()
    assert len(target.decodes) == 1
    assert TEXT[6:36] in guessed([draft], start)
    assert draft.copied == 29


def test_while_the_model_follows_its_copy_nothing_is_told_again() -> None:
    proposer = ModelProposer(ToyTarget(model=reciting))
    start = opening()
    proposer.open(start)
    drafts = [draft for _ in range(20) for draft in proposer.step()]
    assert sum(draft.copied for draft in drafts) == 29
    assert drafts[-1].base == 19


def test_a_commit_far_along_the_copy_is_where_the_model_goes_on() -> None:
    target = ToyTarget(model=reciting)
    proposer = ModelProposer(target)
    start = opening()
    proposer.open(start)
    proposer.step()
    assert proposer.commit("r1", 0, TEXT[6:26], 30)
    (draft,) = proposer.step()
    assert (draft.base, draft.tokens[0]) == (20, TEXT[26])
    assert target.cells[0] == [*AGAIN, *TEXT[6:26]]
    assert len(target.decodes) == 2


def test_the_copy_is_prolonged_when_its_end_comes_near() -> None:
    extension = Extension(opening())
    first = extension.behind(child(TEXT[6:7]), TEXT[6:7], 1.0, 10)
    assert first.tokens == TEXT[7:17]
    assert extension.behind(child(TEXT[6:9]), TEXT[6:9], 1.0, 10) == Continuation()
    assert extension.behind(child(TEXT[6:14]), TEXT[6:14], 1.0, 10).tokens == TEXT[14:24]


@pytest.mark.parametrize("prompt", [(50, 51, 52), (*TEXT, 60, 61, *TEXT[:2])])
def test_without_a_long_match_there_is_no_copy(prompt: tuple[int, ...]) -> None:
    proposer = ModelProposer(ToyTarget(model=reciting))
    proposer.open(opening(prompt))
    assert [draft.copied for draft in proposer.step()] == [0]


def test_what_the_target_hardly_gets_to_is_not_continued() -> None:
    extension = Extension(opening())
    assert extension.behind(child(TEXT[6:7]), TEXT[6:7], 0.05, 30) == Continuation()
    likely = extension.behind(child(TEXT[6:7]), TEXT[6:7], 1.0, 30)
    doubtful = Extension(opening()).behind(child(TEXT[6:7]), TEXT[6:7], 0.15, 30)
    assert 0 < len(doubtful.tokens) < len(likely.tokens)


def test_a_copy_ends_with_the_answer_and_at_the_common_vocabulary() -> None:
    ended = (*TEXT[:20], EOG, *TEXT[20:], 60, 61, *TEXT[:6])
    proposer = ModelProposer(ToyTarget(model=reciting))
    proposer.open(opening(ended))
    assert proposer.step()[0].tokens[-1] == EOG
    proposer.open(opening(n_vocab=30))
    assert proposer.step()[0].tokens[-1] == 29


def test_copies_come_last_in_a_joined_tree_and_the_models_own_guesses_replace_them() -> None:
    start = prefix.EMPTY
    first = Draft("r", 0, start, (1, 9, 2, 3, 4), (0.9, 0.1, 0.8, 0.8, 0.8), (-1, -1, 0, 2, 3), copied=3)
    second = Draft("r", 1, prefix.extend(start, 1), (2, 8), (0.6, 0.4), (-1, -1))
    (joined,) = join([first, second])
    assert joined == Draft(
        "r", 0, start, (1, 9, 2, 8, 3, 4), (0.9, 0.1, 0.6, 0.4, 0.8, 0.8), (-1, -1, 0, 0, 2, 4), copied=2
    )


def test_a_copy_has_a_rank_of_its_own_and_never_replaces_an_opinion() -> None:
    trie = Trie(())
    trie.attach(0, prefix.EMPTY, (1, 2, 3), (0.9, 0.8, 0.7), "d", copied=2)
    node = trie.root.children[1].children[2]
    assert node.guesses == {"d": Guess(0.8, COPIED)}
    trie.attach(1, prefix.extend(prefix.EMPTY, 1), (5, 2), (0.6, 0.4), "d", parents=(-1, -1))
    assert node.guesses == {"d": Guess(0.4, 1)}
    trie.attach(0, prefix.EMPTY, (1, 2, 4), (0.9, 0.8, 0.7), "d", copied=3)
    assert node.guesses == {"d": Guess(0.4, 1)}
    assert trie.root.children[1].guesses == {"d": Guess(0.9, 0)}


def test_copies_that_fail_cost_the_model_no_trust() -> None:
    acceptance = Acceptance()
    for _ in range(50):
        acceptance.learn(0.9, True)
    before = acceptance.estimate(0.9), acceptance.mean
    for _ in range(50):
        acceptance.learn(0.9, False, COPIED)
    assert (acceptance.estimate(0.9), acceptance.mean) == before
    assert acceptance.estimate(0.9, COPIED) < 0.2


@settings(max_examples=few(40))
@given(st.integers(0, 10_000), st.sampled_from([0, 3]))
def test_whatever_the_target_decides_guesses_and_copies_hang_from_real_prefixes(seed: int, branches: int) -> None:
    """The toy target checks meanwhile that every row has the past that its sequence says."""
    source = random.Random(seed)
    proposer = ModelProposer(ToyTarget(n_ctx=160, branches=branches, model=reciting))
    start = opening(lead=12)
    proposer.open(start)
    committed: list[int] = []
    paths = {prefix.extend_all(prefix.EMPTY, start.prompt): list[int]()}
    for _ in range(15):
        drafts = [draft for _ in range(source.randrange(6)) if proposer.busy for draft in proposer.step()]
        for draft in join(drafts):
            hashes = [draft.prefix_hash]
            assert len(paths[draft.prefix_hash]) == draft.base
            for token, parent in zip(draft.tokens, draft.parents or range(-1, len(draft.tokens) - 1), strict=True):
                above = hashes[parent + 1]
                hashes.append(prefix.extend(above, token))
                paths[hashes[-1]] = [*paths[above], token]
        known = [path for path in paths.values() if path[: len(committed)] == committed]
        right = source.choice(known)[len(committed) :]
        news = [*right, source.randrange(2, VOCABULARY)][: source.randrange(1, 14)]
        assert proposer.commit("r1", len(committed), tuple(news), 12)
        for token in news:
            committed.append(token)
            paths[prefix.extend_all(prefix.EMPTY, [*start.prompt, *committed])] = list(committed)
