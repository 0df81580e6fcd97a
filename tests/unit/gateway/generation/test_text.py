"""Tokens to shown text: the same for any split, never a half character, never a stop string."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.generation.text import Detokenizer, StopMatcher, TextStream

PIECES = ["a", "b", "ab", "\n", "é", "😀", "🇩🇪", "👨‍👩‍👧", "漢字"]
TABLE = [bytes([byte]) for byte in range(256)] + [text.encode() for text in PIECES]
TOKENS = st.lists(st.integers(0, len(TABLE) - 1), max_size=30)
TEXTS = st.text("ab😀\n", max_size=40)
STOPS = st.lists(st.text("ab😀", min_size=1, max_size=4), max_size=4)


def shown(parts: Sequence[str], stops: Sequence[str]) -> tuple[str, str | None]:
    matcher = StopMatcher(stops)
    text = "".join(matcher.push(part) for part in parts)
    return text + matcher.flush(), matcher.matched


def expected(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """The definition, by brute force: first to complete, then longest."""
    ends = [(text.find(stop) + len(stop), -len(stop), stop) for stop in stops if stop in text]
    if not ends:
        return text, None
    end, _, stop = min(ends)
    return text[: end - len(stop)], stop


@given(TOKENS)
def test_the_pieces_decode_as_they_would_joined(tokens: list[int]) -> None:
    detokenizer = Detokenizer(TABLE.__getitem__)
    text = "".join(map(detokenizer.push, tokens)) + detokenizer.flush()
    assert text == b"".join(map(TABLE.__getitem__, tokens)).decode(errors="replace")


def test_a_character_appears_only_when_it_is_whole() -> None:
    detokenizer = Detokenizer(TABLE.__getitem__)
    assert [detokenizer.push(byte) for byte in "😀".encode()] == ["", "", "", "😀"]


def test_a_cut_off_character_ends_as_one_replacement() -> None:
    detokenizer = Detokenizer(TABLE.__getitem__)
    assert detokenizer.push(0xF0) + detokenizer.push(0x9F) + detokenizer.flush() == "�"


@given(TEXTS, STOPS, st.data())
def test_any_split_of_the_text_shows_the_same(text: str, stops: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert shown(parts, stops) == expected(text, stops)


@pytest.mark.parametrize(
    ("stops", "text", "result"),
    [
        (["b", "ab"], "xxab", ("xx", "ab")),  # both complete at once: the longest hides more
        (["ab", "xaby"], "xaby", ("x", "ab")),  # the first to complete
        (["aab"], "aaab", ("a", "aab")),  # the prefix overlaps itself
        (["###"], "#a##", ("#a##", None)),  # held back, then shown
    ],
)
def test_which_stop_string_wins(stops: list[str], text: str, result: tuple[str, str | None]) -> None:
    assert shown(list(text), stops) == result


def test_a_thousand_stops_cost_no_more_steps_than_one() -> None:
    stops = [f"{index:04}" for index in range(1000)]
    assert shown(list("a" * 50 + "0999x"), stops) == ("a" * 50, "0999")
    assert shown(["00000"], stops) == ("", "0000")
    assert shown(["9" * 100_000], stops) == ("9" * 100_000, None)


def test_a_possible_prefix_is_held_back() -> None:
    matcher = StopMatcher(["END"])
    assert [matcher.push(part) for part in ("xE", "N", "x", "END", "y")] == ["x", "", "ENx", "", ""]


@given(TOKENS, STOPS)
def test_the_stream_is_the_decoded_text_up_to_its_stop(tokens: list[int], stops: list[str]) -> None:
    stream = TextStream(TABLE.__getitem__, stops)
    text = ""
    for token in tokens:
        text += stream.push(token)
        if stream.stopped is not None:
            break
    text += stream.finish()
    whole = b"".join(map(TABLE.__getitem__, tokens)).decode(errors="replace")
    assert (text, stream.stopped) == expected(whole, stops)
