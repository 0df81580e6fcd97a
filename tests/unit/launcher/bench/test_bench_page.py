"""The page and the card that people share: well-formed, self-contained, and with the card's figures."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from msgspec import structs

from services.launcher.bench import card as cards
from services.launcher.bench import charts
from services.launcher.bench.card import Card
from services.launcher.bench.page import render
from shared.errors import StartError
from tests.cards import CARD, spread

EMPTY = structs.replace(CARD, results=(), comparisons=(), acceptance=(), remarks=(), servers=CARD.servers[1:])


def parsed(card: Card) -> ElementTree.Element:
    return ElementTree.fromstring(render(card))


def figures(page: ElementTree.Element, caption: str) -> list[list[float]]:
    """The numbers of the table whose caption begins so, by row."""
    for table in page.iter("table"):
        if "".join(table.find("caption").itertext()).strip().startswith(caption):  # type: ignore[union-attr]
            return [[float(one.attrib["value"]) for one in row.iter("data")] for row in table.iter("tr")][1:]
    raise AssertionError(f"no table {caption}")


@pytest.mark.parametrize("card", [CARD, EMPTY])
def test_the_page_is_well_formed(card: Card) -> None:
    assert parsed(card).tag == "html"


def test_the_page_asks_nobody_for_anything() -> None:
    text = render(CARD)
    assert set(re.findall(r"https?://[^\s<\"']+", text)) == {"http://127.0.0.1:7071"}  # the command to measure again
    page = parsed(CARD)
    assert not [one.tag for one in page.iter() if one.tag in ("script", "link", "img", "iframe", "object", "use")]
    assert not [name for one in page.iter() for name in one.attrib if name in ("src", "href", "style", "action")]
    assert "@import" not in text
    assert "url(" not in text


def test_results_are_the_cards() -> None:
    assert figures(parsed(CARD), "Per kind of work") == [
        [
            *(spread.mean for spread in (one.tokens_per_second, one.total_tokens_per_second) if spread),
            *(percentiles.p50 for percentiles in (one.first_token_ms, one.inter_token_ms) if percentiles),
            *([] if one.acceptance_rate is None else [one.acceptance_rate]),
            one.tokens_per_round,
            one.answers,
        ]
        for one in CARD.results
    ]


def test_ratios_and_headlines_are_the_cards() -> None:
    page = parsed(CARD)
    assert figures(page, "draftmesh over each") == [
        [ratio.mean for ratio in (one.decode, one.total, one.first_token) if ratio] for one in CARD.comparisons
    ]
    (headlines,) = [one for one in page.iter("ul") if one.attrib.get("class") == "headlines"]
    assert [float(one.attrib["value"]) for one in headlines.iter("data")] == [2.875, 1.875]


def test_drafters_are_the_cards() -> None:
    rows = figures(parsed(CARD), "What each drafter's guesses")
    assert rows == [[200, 280, 200 / 280, 150, 161.0, 0.6], [200, 280, 200 / 280, 150]]


def test_what_models_and_machines_call_themselves_is_inert() -> None:
    hostile = structs.replace(CARD, remarks=("<script>alert(1)</script>",))
    page = parsed(hostile)
    assert not list(page.iter("script"))
    assert "<script>alert(1)</script>" in "".join(page.itertext())
    assert "A CPU <64>, 2 cores" in "".join(page.itertext())


def test_every_table_has_a_caption_and_every_picture_a_name() -> None:
    page = parsed(CARD)
    assert all(table.find("caption") is not None for table in page.iter("table"))
    pictures = list(page.iter("svg"))
    assert len(pictures) == 5  # speeds at two temperatures, speed-ups, acceptance, cost of rows
    assert all(picture.attrib["role"] == "img" and picture.find("title") is not None for picture in pictures)


def test_it_follows_the_readers_colours_and_width() -> None:
    text = render(CARD)
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport" content="width=device-width' in text


def test_no_mark_of_a_chart_lies_outside_of_it() -> None:
    for chart in charts.charts(CARD):
        for shape in chart.shapes:
            for name, value in shape.attributes.items():
                if name in ("x", "x1", "x2", "cx"):
                    assert 0 <= float(value) <= charts.WIDTH, (chart.title, shape)
                if name in ("y", "y1", "y2", "cy"):
                    assert 0 <= float(value) <= chart.height, (chart.title, shape)


def test_several_loads_are_drawn_as_a_curve_of_all_requests_together() -> None:
    twice = tuple(structs.replace(one, concurrency=4, total_tokens_per_second=spread(50.0)) for one in CARD.results)
    several = structs.replace(CARD, results=(*CARD.results, *twice))
    title = "Tokens per second of all requests together, temperature 0"
    [chart] = [one for one in charts.charts(several) if one.title == title]
    assert "draftmesh, 4 at once: 50.0" in chart.summary
    assert title not in [one.title for one in charts.charts(CARD)]


def test_a_bar_is_as_long_as_its_figure() -> None:
    chart = charts.charts(CARD)[0]
    widths = [float(shape.attributes["width"]) for shape in chart.shapes if shape.tag == "rect"]
    assert widths[0] / widths[1] == pytest.approx(39.125 / 13.5, rel=0.01)


@pytest.mark.parametrize(
    ("top", "ticks"),
    [(0.0, [0, 1]), (1.0, [0, 0.25, 0.5, 0.75, 1.0]), (41.7, [0, 20, 40, 60]), (0.3, [0, 0.1, 0.2, 0.3])],
)
def test_axes_end_at_round_values(top: float, ticks: list[float]) -> None:
    assert charts._ticks(top) == pytest.approx(ticks)


# ---------------------------------------------------------------- the card's file


def keys(value: Any, path: str = "") -> set[str]:
    """Every key of a JSON value, with those that lead to it."""
    if isinstance(value, dict):
        return {f"{path}{key}" for key in value} | {
            inner for key, one in value.items() for inner in keys(one, f"{path}{key}.")
        }
    if isinstance(value, list):
        return {inner for one in value for inner in keys(one, path)}
    return set()


def test_the_keys_of_a_card_stay(tmp_path: Path) -> None:
    file = tmp_path / "card.json"
    cards.write(CARD, file)
    golden = Path(__file__).parents[3] / "golden" / "bench-card-keys.txt"
    assert sorted(keys(json.loads(file.read_text()))) == golden.read_text().splitlines()


def test_a_card_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "card.json"
    cards.write(CARD, file)
    assert cards.read(file) == CARD


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a benchmark card"),
        ("[]", "not a benchmark card"),
        ('{"settings": {}}', "not a benchmark card"),
        ('{"card": 2, "new": 1}', "is of version 2, and this draftmesh knows version 1"),
        ('{"card": 1}', "a damaged card"),
        (msgspec.json.encode(structs.replace(CARD, servers=())).decode(), "a damaged card"),
    ],
)
def test_what_is_no_card_of_ours_is_refused_by_one_line(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "card.json"
    file.write_text(text)
    with pytest.raises(StartError, match=message) as caught:
        cards.read(file)
    assert "\n" not in str(caught.value)


def test_a_card_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"card .*nowhere\.json: No such file"):
        cards.read(tmp_path / "nowhere.json")
