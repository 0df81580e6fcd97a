"""How decodes are fitted to the last shape. What that does to whole answers is in `test_steady_shapes`."""

import pytest

from services.verifier.fitting import Fitting, Widths, give_outputs
from services.verifier.shapes import Shapes
from services.verifier.trie import TrieNode
from shared.law.speedup import RowCosts
from shared.model.rows import DecodeShape, Rows

CARD = RowCosts({1: 10.1, 512: 61.2})  # 0.1 ms a row
CPU = RowCosts({1: 35.0, 512: 2590.0})  # 5 ms a row
RATE = 0.1  # tokens per millisecond


def after(shape: DecodeShape, graph_ms: float = 1.0, most_leaves: int = 8) -> Fitting:
    shapes = Shapes(graph_ms)
    shapes.decoded(shape, 0.0, 10.0, reused=False)
    return Fitting(shapes, most_leaves)


def drafts(count: int) -> list[TrieNode]:
    return [TrieNode(5, place, 0, None) for place in range(count)]


def chain(width: int, tokens: float) -> Widths:
    return Widths([drafts(width)], 1 + width, 1, tokens)


def test_missing_drafts_are_padded_on_a_card_and_not_on_a_cpu() -> None:
    few = chain(3, 3.0)
    fitting = after(DecodeShape(9, 9, 1))
    kept = fitting.fit(few, few, 0.015, CARD, RATE)
    assert kept.shape == DecodeShape(9, 9, 1)
    assert kept.loss_ms == pytest.approx(0.5)
    assert fitting.fit(few, few, 0.015, CPU, RATE).shape is None


def test_drafts_beyond_the_shape_are_left_out_only_if_they_are_worth_little() -> None:
    fitting, full = after(DecodeShape(9, 9, 1)), chain(8, 5.0)
    kept = fitting.fit(chain(12, 5.1), full, 0.015, CARD, RATE)
    assert kept.widths is full
    assert kept.loss_ms == pytest.approx(-0.6)
    assert fitting.fit(chain(12, 6.0), full, 0.015, CARD, RATE).shape is None


def test_a_decode_that_needs_more_than_the_shape_has_gets_its_own() -> None:
    whole = Widths([drafts(8)], 9, 3, 4.0)
    for shape in (DecodeShape(8, 8, 3), DecodeShape(9, 8, 3), DecodeShape(9, 9, 2)):
        assert after(shape).fit(whole, whole, 0.0, CARD, RATE).shape is None
    assert after(DecodeShape(9, 9, 3)).fit(whole, whole, 0.0, CARD, RATE).shape == DecodeShape(9, 9, 3)


def test_sequences_to_spare_are_used_where_they_are_cheap() -> None:
    one = chain(8, 5.0)
    fitting = after(DecodeShape(9, 9, 4))
    assert fitting.fit(one, one, 0.03, CARD, RATE).spare == 3
    assert fitting.fit(one, one, 3.0, CARD, RATE).shape is None
    assert after(DecodeShape(9, 9, 4), most_leaves=1).fit(one, one, 0.03, CARD, RATE).shape is None


def test_a_new_shape_has_sequences_for_trees_that_branch_a_little_more() -> None:
    tree = Widths([drafts(20), drafts(4)], 26, 5, 4.0)
    assert after(DecodeShape(1, 1, 1)).fit(tree, tree, 0.03, CARD, RATE).spare == 3
    assert after(DecodeShape(1, 1, 1)).fit(tree, tree, 3.0, CARD, RATE).spare == 0
    assert after(DecodeShape(1, 1, 1), graph_ms=0.0).fit(tree, tree, 0.03, CARD, RATE).spare == 0


def decoding(count: int) -> Rows:
    rows = Rows()
    for position in range(count):
        rows.add(5, position, (0,), True)
    return rows


def test_a_piece_of_a_prompt_gives_up_a_few_rows_for_the_shape() -> None:
    piece = after(DecodeShape(60, 4, 2)).piece(decoding(4), 57, CARD)
    assert (piece.rows, piece.outputs) == (56, 4)
    assert after(DecodeShape(40, 4, 2)).piece(decoding(4), 57, CARD).rows > 50
    assert after(DecodeShape(60, 4, 2)).piece(decoding(4), 57, CPU).rows == 57


def test_a_long_piece_is_as_long_as_it_may_be_because_its_graph_does_not_last() -> None:
    assert after(DecodeShape(299, 1, 2)).piece(decoding(1), 300, CARD).rows == 300


def test_logits_are_asked_for_from_the_end_and_never_of_fewer_rows() -> None:
    rows = Rows()
    for position in range(5):
        rows.add(5, position, (0,), position < 2)
    give_outputs(rows, 1)
    assert rows.outputs == [True, True, False, False, False]
    give_outputs(rows, 4)
    assert rows.outputs == [True, True, False, True, True]
