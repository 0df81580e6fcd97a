"""When a decode keeps the shape of the one before, and what a new graph is found to cost."""

from services.verifier.shapes import Shapes
from shared.model.rows import DecodeShape

NINE, FIVE = DecodeShape(9, 9, 1), DecodeShape(5, 5, 1)


def test_a_shape_is_kept_if_that_loses_less_than_a_graph_costs() -> None:
    shapes = Shapes(1.0)
    assert shapes.keeps(0.9)
    assert shapes.keeps(-0.9)
    assert not shapes.keeps(1.0)
    assert not shapes.keeps(-1.0)


def test_a_shape_that_never_fits_is_given_up() -> None:
    shapes = Shapes(1.0)
    shapes.decoded(NINE, 0.0, 10.0, reused=False)
    kept = 0
    while shapes.keeps(0.4):
        shapes.decoded(NINE, 0.4, 10.0, reused=True)
        kept += 1
    assert kept == 7
    shapes.decoded(FIVE, 0.0, 10.0, reused=False)
    assert shapes.keeps(0.4)


def test_a_shape_in_the_middle_of_what_is_needed_lasts() -> None:
    shapes = Shapes(1.0)
    shapes.decoded(NINE, 0.0, 10.0, reused=False)
    for number in range(1000):
        loss_ms = 0.7 if number % 2 else -0.7
        assert shapes.keeps(loss_ms)
        shapes.decoded(NINE, loss_ms, 10.0, reused=True)


def test_a_graph_costs_what_the_first_decode_of_a_shape_takes_more_than_the_second() -> None:
    shapes = Shapes(1.0)
    for number in range(20):
        shape = NINE if number % 2 else FIVE
        interrupted_ms = 50.0 if number % 5 == 0 else 0.0
        shapes.decoded(shape, 0.0, shape.rows + 2.5 + interrupted_ms, reused=False)
        shapes.decoded(shape, 0.0, shape.rows, reused=True)
    assert shapes.graph_ms == 2.5


def test_a_few_decodes_or_absurd_ones_say_little_about_the_price() -> None:
    shapes = Shapes(1.0)
    for reused in (False, True) * 4:
        shapes.decoded(NINE, 0.0, 10.0 if reused else 90.0, reused)
    assert shapes.graph_ms == 1.0
    for reused in (False, True) * 20:
        shapes.decoded(NINE, 0.0, 10.0 if reused else 90.0, reused)
    assert shapes.graph_ms == 4.0


def test_nothing_is_kept_where_graphs_cost_nothing() -> None:
    shapes = Shapes(0.0)
    for reused in (False, True) * 20:
        shapes.decoded(NINE, 0.0, 10.0 if reused else 90.0, reused)
    assert not shapes.keeps(0.0)
