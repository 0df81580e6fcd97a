"""Idle conversations leave the cache for host memory when another request begins, and come back whole."""

from collections import Counter

from shared.model.rows import Rows
from shared.model.saved_states import SavedStates
from shared.model.sequences import MIN_COPY, SPAN_STEP, Sequences, Slot
from tests.toys import ToyTarget

LENGTH = 300
TOKEN_BYTES = 4  # of the toy's states


def conversation(index: int, length: int = LENGTH) -> list[int]:
    return [2 + index, *(2 + (index + step) % 50 for step in range(length - 1))]


class Cache:
    """Sequences over a toy target, with `budget` tokens of host memory."""

    def __init__(self, budget: int = 100_000, sequences: int = 8, unified: bool = True) -> None:
        self.target = ToyTarget(sequences=sequences, unified=unified, n_ctx=1024, max_rows=1024)
        self.counted: Counter[str] = Counter()
        self.saved = SavedStates(self.target, TOKEN_BYTES * budget, self._count)
        self.sequences = Sequences(self.target, self.saved)

    def _count(self, name: str, amount: int) -> None:
        self.counted[name] += amount

    def begin(self, tokens: list[int], share: bool = True) -> tuple[Slot, int]:
        """A request that reads its prompt; how many tokens it found."""
        slot = self.sequences.acquire(tokens, share)
        found = len(slot.tokens)
        assert self.target.cells[slot.id] == slot.tokens == tokens[:found]
        rows = Rows()
        rows.extend(tokens[found:], found, slot.id)
        self.target.decode(rows)
        self.sequences.accept(slot, tokens[found:])
        return slot, found

    def serve(self, tokens: list[int], share: bool = True) -> int:
        slot, found = self.begin(tokens, share)
        self.sequences.release(slot)
        return found

    @property
    def resident(self) -> list[list[int]]:
        return [cells for cells in self.target.cells if cells]


def test_after_eight_idle_conversations_the_cache_holds_only_the_running_one() -> None:
    cache = Cache()
    for index in range(8):
        cache.serve(conversation(index))
    running, _ = cache.begin(conversation(20))
    assert cache.resident == [conversation(20)]
    assert cache.sequences.held == cache.sequences.span == LENGTH
    assert cache.saved.size == cache.counted["saved_bytes"] == 8 * LENGTH * TOKEN_BYTES
    assert running.restored == 0


def test_a_conversation_comes_back_whole_and_is_saved_once() -> None:
    cache = Cache()
    for index in range(4):
        cache.serve(conversation(index))
    for index in range(4):
        assert cache.serve([*conversation(index), 60]) == LENGTH
    saves = cache.target.saves
    cache.serve([*conversation(0), 60])  # back again, with no new token since
    cache.serve([*conversation(1), 60])
    assert cache.target.saves - saves == 1  # of the last one, which has not left with its new token yet


def test_the_next_turn_of_the_conversation_that_ended_last_costs_no_copy() -> None:
    cache = Cache()
    cache.serve(conversation(0))
    slot, found = cache.begin([*conversation(0), 60])
    assert (found, slot.restored, cache.target.saves) == (LENGTH, 0, 0)


def test_a_restored_prefix_counts_as_restored() -> None:
    cache = Cache()
    for index in range(4):
        cache.serve(conversation(index))
    slot, found = cache.begin([*conversation(0), 60])
    assert (found, slot.restored) == (LENGTH, LENGTH)


def test_a_state_is_cut_to_what_the_request_shares_with_it() -> None:
    cache = Cache()
    for index in range(4):
        cache.serve(conversation(index))
    slot, found = cache.begin([*conversation(0)[:40], 60, 61])
    assert (found, slot.restored) == (40, 40)


def test_few_idle_tokens_stay_because_they_widen_no_decode() -> None:
    cache = Cache()
    cache.serve(conversation(0, SPAN_STEP // 2))
    cache.begin(conversation(20))
    assert (cache.target.saves, len(cache.resident)) == (0, 2)


def test_a_private_request_is_never_saved() -> None:
    cache = Cache()
    private = conversation(0, 250)
    cache.serve(private, share=False)
    for index in range(1, 4):
        cache.serve(conversation(index))
    assert cache.serve([*private[:-1], 60]) == 0
    assert private not in cache.resident
    assert cache.counted["saved_bytes"] % (LENGTH * TOKEN_BYTES) == 0


def test_the_least_recently_used_state_goes_when_the_budget_is_spent() -> None:
    cache = Cache(budget=3 * LENGTH)
    for index in range(5):
        cache.serve(conversation(index))
    cache.begin(conversation(20))
    assert cache.saved.size <= 3 * LENGTH * TOKEN_BYTES
    assert cache.counted["evicted_states"] == 2
    assert [cache.saved.match(conversation(index)) is not None for index in range(5)] == [False] * 2 + [True] * 3


def test_a_conversation_beyond_the_whole_budget_stays_on_the_device() -> None:
    cache = Cache(budget=LENGTH)
    long = conversation(0, 2 * LENGTH)
    cache.serve(long)
    cache.serve(conversation(9))
    cache.begin(conversation(20))
    assert long in cache.resident


def test_in_streams_a_conversation_leaves_only_when_its_place_is_needed() -> None:
    cache = Cache(sequences=2, unified=False)
    for index in range(2):
        cache.serve(conversation(index))
    assert cache.target.saves == 0
    cache.serve(conversation(2))
    assert cache.target.saves == 1
    assert cache.serve([*conversation(0), 60]) == LENGTH


def test_a_request_that_runs_beside_others_lets_them_be() -> None:
    cache = Cache()
    one, _ = cache.begin(conversation(0))
    cache.serve(conversation(1, 250))
    cache.serve(conversation(2, 250))
    cache.begin(conversation(20))
    assert conversation(0) in cache.resident
    assert one.tokens == conversation(0)


def test_a_short_common_beginning_is_read_rather_than_restored() -> None:
    cache = Cache()
    for index in range(4):
        cache.serve(conversation(index))
    assert cache.serve([*conversation(0)[: MIN_COPY - 1], 60, 61]) == 0


def test_a_target_that_keeps_only_a_window_saves_nothing() -> None:
    assert ToyTarget(window=8).states is None


def test_what_stays_on_the_device_moves_to_the_first_cells_once_it_is_alone() -> None:
    cache = Cache()
    for index in range(3):
        cache.serve(conversation(index))
    saves = cache.target.saves
    one, _ = cache.begin(conversation(5))
    other, _ = cache.begin(conversation(6, 2 * LENGTH))
    cache.sequences.release(one)
    cache.sequences.release(other)
    slot, found = cache.begin([*conversation(6, 2 * LENGTH), 60])
    assert (found, slot.restored) == (2 * LENGTH, 0)
    assert cache.sequences.span == cache.sequences.held == 2 * LENGTH + 1
    assert cache.target.saves - saves == 3  # conversations 2 and 5 left, and this one moved
