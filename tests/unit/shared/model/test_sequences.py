from shared.model.rows import Rows
from shared.model.sequences import MIN_COPY, Sequences
from tests.toys import ToyTarget

LONG = list(range(2, 42))


def fill(sequences: Sequences, target: ToyTarget, tokens: list[int]) -> None:
    """A request over `tokens` that ran and ended."""
    slot = sequences.acquire([*tokens, 63], share=True)
    target.cells[slot.id] = list(tokens)
    slot.tokens[:] = tokens
    sequences.release(slot)


def test_the_longest_resident_prefix_is_reused_in_place() -> None:
    target = ToyTarget()
    sequences = Sequences(target)
    fill(sequences, target, LONG)
    slot = sequences.acquire([*LONG, 50, 51], share=True)
    assert slot.tokens == LONG == target.cells[slot.id]


def test_the_last_prompt_token_is_always_computed_again() -> None:
    target = ToyTarget()
    sequences = Sequences(target)
    fill(sequences, target, LONG)
    slot = sequences.acquire(LONG, share=True)
    assert slot.tokens == LONG[:-1] == target.cells[slot.id]


def test_what_the_cache_holds_is_counted_for_running_requests_and_in_all() -> None:
    target = ToyTarget()
    sequences = Sequences(target)
    fill(sequences, target, LONG)
    assert (sequences.held, sequences.running) == (len(LONG), 0)
    sequences.acquire([*LONG, 50], share=True)
    assert (sequences.held, sequences.running) == (len(LONG), len(LONG))


def test_a_busy_request_lends_its_prefix_by_copy() -> None:
    target = ToyTarget()
    sequences = Sequences(target)
    busy = sequences.acquire([*LONG, 50], share=True)
    busy.tokens[:] = target.cells[busy.id] = [*LONG, 50]
    other = sequences.acquire([*LONG, 60], share=True)
    assert other is not busy
    assert other.tokens == LONG == target.cells[other.id]
    assert target.cells[busy.id] == [*LONG, 50]


def test_a_long_conversation_survives_a_request_that_shares_its_beginning() -> None:
    target = ToyTarget()
    sequences = Sequences(target)
    fill(sequences, target, LONG)
    shared = LONG[:MIN_COPY]
    slot = sequences.acquire([*shared, 60, 61], share=True)
    assert slot.tokens == shared
    assert LONG in target.cells


def test_the_least_recently_used_place_goes_first() -> None:
    target = ToyTarget(sequences=2)
    sequences = Sequences(target)
    fill(sequences, target, [10, 11, 12])
    fill(sequences, target, [20, 21, 22])
    sequences.acquire([30, 31], share=True)
    assert [10, 11, 12] not in target.cells
    assert [20, 21, 22] in target.cells


def test_a_private_request_starts_empty_and_leaves_nothing_for_others() -> None:
    target = ToyTarget(sequences=2)
    sequences = Sequences(target)
    fill(sequences, target, LONG)
    private = sequences.acquire([*LONG, 50], share=False)
    assert private.tokens == []
    rows = Rows()
    rows.extend([*LONG, 50], 0, private.id)
    target.decode(rows)
    sequences.accept(private, [*LONG, 50])
    while_it_runs = sequences.acquire([*LONG, 50, 60], share=True)
    assert while_it_runs.tokens == LONG  # of the open request, not the longer private one
    sequences.release(while_it_runs)
    sequences.release(private)
    after = sequences.acquire([*LONG, 50, 70], share=True)
    assert after.tokens == LONG
    assert sequences.acquire([30, 31], share=True) is private  # its place goes first
    assert target.cells[private.id] == []


def windowed(window: int, tokens: list[int], sequences: int = 2) -> tuple[ToyTarget, Sequences]:
    """A target whose window has forgotten all but the end of a request over `tokens` that ran and ended."""
    target = ToyTarget(window=window, sequences=sequences)
    held = Sequences(target)
    slot = held.acquire([*tokens, 63], share=True)
    for part in (tokens[:20], tokens[20:-1], tokens[-1:]):  # the last token was decoded by itself
        rows = Rows()
        rows.extend(part, len(slot.tokens), slot.id)
        target.decode(rows)
        held.accept(slot, part)
    held.release(slot)
    return target, held


def test_a_conversation_goes_on_where_a_window_has_forgotten_its_beginning() -> None:
    target, sequences = windowed(8, LONG)
    slot = sequences.acquire([*LONG, 50, 51], share=True)
    assert slot.tokens == LONG == target.cells[slot.id]


def test_a_prefix_that_a_window_has_forgotten_is_read_anew_and_the_conversation_stays() -> None:
    target, sequences = windowed(8, LONG)
    slot = sequences.acquire([*LONG[:30], 50, 51], share=True)
    assert slot.tokens == target.cells[slot.id] == []
    assert LONG in target.cells


def test_what_fits_the_window_is_taken_back_and_no_more() -> None:
    target, sequences = windowed(8, LONG, sequences=1)
    [slot] = sequences.slots
    assert target.floor(slot.id) == len(LONG) - 1
    sequences.keep(slot, [*LONG[:-1], 50])
    assert slot.tokens == target.cells[slot.id] == LONG[:-1]
    sequences.keep(slot, [*LONG[:-2], 50])
    assert slot.tokens == target.cells[slot.id] == []


def test_a_busy_request_lends_nothing_where_windows_are_not_shared() -> None:
    target, sequences = windowed(64, LONG)
    sequences.acquire([*LONG, 50], share=True)
    other = sequences.acquire([*LONG, 60], share=True)
    assert other.tokens == target.cells[other.id] == []
