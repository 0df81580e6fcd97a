from hypothesis import given
from hypothesis import strategies as st

from services.verifier.trie import Guess, Trie, TrieNode
from shared.law import prefix

PROMPT = (9, 8, 7)


def hash_of(*output: int) -> int:
    return prefix.extend_all(prefix.EMPTY, [*PROMPT, *output])


def paths(trie: Trie) -> set[tuple[int, ...]]:
    """Every path of guesses from the root, as tokens."""
    found: set[tuple[int, ...]] = set()

    def visit(node: TrieNode, path: tuple[int, ...]) -> None:
        for child in node.children.values():
            found.add((*path, child.token))
            visit(child, (*path, child.token))

    visit(trie.root, ())
    return found


def test_a_chain_hangs_from_the_root() -> None:
    trie = Trie(PROMPT)
    assert trie.attach(0, hash_of(), (1, 2), (0.5, 0.5), "d") == 2
    assert paths(trie) == {(1,), (1, 2)}


def test_chains_of_several_drafters_share_nodes() -> None:
    trie = Trie(PROMPT)
    trie.attach(0, hash_of(), (1, 2), (0.5, 0.5), "d")
    trie.attach(0, hash_of(), (1, 3), (0.9, 0.1), "e")
    assert paths(trie) == {(1,), (1, 2), (1, 3)}
    assert trie.root.children[1].guesses == {"d": Guess(0.5), "e": Guess(0.9)}


def test_a_chain_hangs_from_a_guess_named_by_its_hash() -> None:
    trie = Trie(PROMPT)
    trie.attach(0, hash_of(), (1,), (0.5,), "d")
    assert trie.attach(1, hash_of(1), (2,), (0.5,), "d") == 1
    assert paths(trie) == {(1,), (1, 2)}


def test_a_commit_keeps_what_hangs_from_the_committed_path() -> None:
    trie = Trie(PROMPT)
    trie.attach(0, hash_of(), (1, 2, 3), (0.5,) * 3, "d")
    trie.attach(0, hash_of(), (4, 5), (0.5,) * 2, "d")
    trie.advance([1])
    assert (trie.offset, paths(trie), len(trie)) == (1, {(2,), (2, 3)}, 2)


def test_a_late_proposal_on_the_committed_path_is_attached_behind_it() -> None:
    trie = Trie(PROMPT)
    trie.advance([1, 2])
    assert trie.attach(0, hash_of(), (1, 2, 3), (0.1, 0.2, 0.3), "d") == 1
    assert paths(trie) == {(3,)}
    assert trie.root.children[3].guesses == {"d": Guess(0.3)}


def test_stale_proposals_are_dropped() -> None:
    trie = Trie(PROMPT)
    trie.advance([1, 2])
    assert trie.attach(0, hash_of(), (1, 9, 3), (0.5,) * 3, "d") is None  # left the committed path
    assert trie.attach(0, hash_of() ^ 1, (1, 2, 3), (0.5,) * 3, "d") is None  # another prefix
    assert trie.attach(5, hash_of(1, 2, 3, 4, 5), (6,), (0.5,), "d") is None  # unknown future
    assert len(trie) == 0


def test_what_was_right_but_late_is_told_from_what_was_wrong() -> None:
    trie = Trie(PROMPT)
    trie.advance([1, 2])
    assert trie.attach(0, hash_of(), (1, 2), (0.5,) * 2, "d") == 0
    assert trie.attach(0, hash_of(), (8, 1, 9, 2), (0.5,) * 4, "d", (-1, -1, 0, 1)) == 0
    assert trie.attach(0, hash_of(), (8, 1, 9, 7), (0.5,) * 4, "d", (-1, -1, 0, 1)) is None
    assert len(trie) == 0


def test_a_talkative_drafter_cannot_grow_the_trie_beyond_its_bound() -> None:
    trie = Trie(PROMPT, max_nodes=10)
    for token in range(30):
        trie.attach(0, hash_of(), (token, token), (0.5, 0.5), "d")
    assert len(trie) == 10


chains = st.lists(st.integers(0, 3), min_size=1, max_size=5)
proposals = st.tuples(st.just("propose"), st.integers(0, 8), chains)
commits = st.tuples(st.just("commit"), st.just(0), chains)


@given(st.lists(proposals | commits, max_size=12))
def test_the_trie_equals_a_set_of_sequences(steps: list[tuple[str, int, list[int]]]) -> None:
    """Naive model: all guessed sequences from offset 0; those that extend the committed tokens are in the trie."""
    trie = Trie(PROMPT)
    committed: list[int] = []
    guesses: set[tuple[int, ...]] = set()
    for kind, at, tokens in steps:
        if kind == "commit":
            trie.advance(tokens)
            committed += tokens
            guesses = {guess for guess in guesses if guess[: len(committed)] == tuple(committed)}
            continue
        base = min(at, len(committed))
        full = [*committed[:base], *tokens]
        trie.attach(base, hash_of(*committed[:base]), tokens, [0.5] * len(tokens), "d")
        if full[: len(committed)] == committed[: len(full)]:
            guesses |= {tuple(full[:end]) for end in range(len(committed) + 1, len(full) + 1)}
    assert paths(trie) == {guess[len(committed) :] for guess in guesses if len(guess) > len(committed)}
    assert len(trie) == len(paths(trie))
    assert trie.root.hash == hash_of(*committed)
