"""JSON read in pieces: as Python's own reader has it, whatever the pieces."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.formats.json_text import JsonText, StringText

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def passed(reader: JsonText | StringText, text: str) -> tuple[str, str]:
    """What came out of `text` pushed in one piece, and the rest that was not read."""
    out, at = reader.push(text)
    return out, text[at:]


@given(_VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_a_value_comes_out_as_it_is_and_what_follows_is_left(value: object, ascii: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii, indent=indent)
    reader = JsonText()
    assert passed(reader, f" {text}, rest") == (text, ", rest")
    assert reader.done
    assert not reader.broken


@given(_VALUES)
def test_character_by_character_is_the_same(value: object) -> None:
    text = json.dumps(value) + "\n"
    reader, out = JsonText(), ""
    for character in text:
        if not reader.done:
            out += reader.push(character)[0]
    assert reader.done
    assert out == text[:-1]


@given(st.text(st.sampled_from('{}[]",:\\/ u0a1-+.eEtruefalsnl\n😀'), max_size=12))
def test_what_is_accepted_is_json(text: str) -> None:
    reader = JsonText()
    out, at = reader.push(text + " ")
    if reader.done and not reader.broken and not text[at:].strip():
        json.loads(out)
    else:
        with pytest.raises(ValueError):
            json.loads(text)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ('{"a": oops}', "oops}"),
        ('{"a": 1,}', "}"),
        ("{a: 1}", "a: 1}"),
        ('{"a" 1}', "1}"),
        ('{"a": 01}', "}"),
        ('{"a": tru e}', " e}"),
        ('{"a": "\\x"}', 'x"}'),
        ('{"a": "\\u12G4"}', 'G4"}'),
        ("[1, 2}", "}"),
        ("[1, ]", "]"),
        ("NaN", "NaN"),
        ("'a'", "'a'"),
        ("٣", "٣"),
    ],
)
def test_reading_stops_where_it_breaks(text: str, rest: str) -> None:
    reader = JsonText()
    assert passed(reader, text)[1] == rest
    assert reader.broken


def test_an_object_is_demanded() -> None:
    reader = JsonText(object_only=True)
    assert passed(reader, "[1]") == ("", "[1]")
    assert reader.broken


def test_control_characters_in_strings_are_escaped() -> None:
    assert passed(JsonText(), '"a\nb\x00"') == ('"a\\nb\\u0000"', "")


def test_depth_and_digits_are_bounded() -> None:
    deep, digits = JsonText(), JsonText()
    deep.push("[" * 201)
    assert deep.broken
    first, at = digits.push("1" * 600)
    second, _ = digits.push("1" * 600)
    assert digits.broken
    assert at == 600
    assert len(first + second) == 1000


@given(st.text(), st.booleans(), st.lists(st.integers(0, 60), max_size=4))
def test_a_string_is_decoded_in_any_pieces(text: str, ascii: bool, cuts: list[int]) -> None:
    source = json.dumps(text, ensure_ascii=ascii)[1:] + "rest"
    reader, out, start = StringText(), "", 0
    for cut in [*sorted(min(cut, len(source)) for cut in cuts), len(source)]:
        if not reader.done:
            piece, at = reader.push(source[start:cut])
            out, start = out + piece, start + at
    assert reader.done
    assert out == text
    assert source[start:] == "rest"


@pytest.mark.parametrize(
    ("source", "text"),
    [(r'\ud83d\ude00"', "😀"), (r'\ud83d"', "\ufffd"), (r'\ude00x"', "\ufffdx"), (r'\ud83d\ud83d\ude00"', "\ufffd😀")],
)
def test_halves_of_surrogate_pairs_are_joined_or_replaced(source: str, text: str) -> None:
    assert passed(StringText(), source) == (text, "")


@pytest.mark.parametrize("source", [r'\x"', r'\u12x4"', r'\uu"'])
def test_a_wrong_escape_breaks_a_string(source: str) -> None:
    reader = StringText()
    reader.push(source)
    assert reader.broken
