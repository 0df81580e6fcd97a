"""From commits to events: what counts as thinking, and when an answer ended with calls."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.dialects.tool_calls import bare
from services.gateway.formats.parts import CallArguments, CallEnd, CallStart, Part, Text, Thought, merged
from services.gateway.generation.choice import Choice, Finished
from services.gateway.generation.preparation import Reading
from shared.wire.messages import Chunk, Finish
from tests.toy_format import ToyParser


def finished(text: str, finish: Finish = Finish.STOP, width: int = 1) -> Finished:
    """One token per byte."""
    choice = Choice(0, Reading(piece=lambda token: bytes([token]), parser=ToyParser))
    data = text.encode()
    for start in range(0, len(data), width):
        choice.take(Chunk(tokens=tuple(data[start : start + width])))
    [event] = [one for one in choice.take(Chunk(tokens=(), finish=finish)) if isinstance(one, Finished)]
    return event


@pytest.mark.parametrize("width", [1, 3, 100])
def test_tokens_of_thinking_are_counted_with_the_mark_before_them(width: int) -> None:
    assert finished("<think>abcd</think>Hello", width=width).reasoning == len("<think>abcd")
    assert finished("Hello", width=width).reasoning == 0
    assert finished("<think>ab<", Finish.LENGTH, width).reasoning == len("<think>ab<")


def test_an_answer_with_a_complete_call_ends_with_tool_calls() -> None:
    event = finished("Sure. <call f>{}</call>")
    assert event.reason == "tool_calls"
    assert event.call
    assert event.turn is not None
    assert bytes(event.turn.tokens).decode() == "Sure. <call f>{}</call>"


def test_an_answer_with_a_call_that_was_cut_off_does_not_ask_for_its_calls_to_be_made() -> None:
    assert finished("<call f>{}</call><call g>{").reason == "stop"


@pytest.mark.parametrize(("finish", "reason"), [(Finish.STOP, "stop"), (Finish.LENGTH, "length")])
def test_a_call_that_was_cut_off_is_no_call(finish: Finish, reason: str) -> None:
    event = finished("<call f>{", finish)
    assert (event.reason, event.call, event.turn) == (reason, "", None)


def test_a_cut_turn_is_not_kept() -> None:
    assert finished("<call f>{}</call><call g>{").call == ""


def test_the_limit_outweighs_the_calls() -> None:
    assert finished("<call f>{}</call>", Finish.LENGTH).reason == "length"


_PART = st.one_of(
    st.builds(Text, st.text(min_size=1, max_size=3)),
    st.builds(Thought, st.text(min_size=1, max_size=3)),
    st.builds(CallStart, st.integers(0, 1), st.just("id"), st.just("f")),
    st.builds(CallArguments, st.integers(0, 1), st.text(min_size=1, max_size=3)),
    st.builds(CallEnd, st.integers(0, 1)),
)


@given(st.lists(_PART, max_size=12))
def test_merged_parts_say_the_same(parts: list[Part]) -> None:
    once = merged(parts)
    assert merged(once) == once
    assert all(merged(pair) == tuple(pair) for pair in itertools.pairwise(once))
    assert _spelled(once) == _spelled(parts)


def _spelled(parts: object) -> list[object]:
    """Parts with texts cut into characters."""
    assert isinstance(parts, list | tuple)
    spelled: list[object] = []
    for part in parts:
        match part:
            case Text(text) | Thought(text):
                spelled += [(type(part), character) for character in text]
            case CallArguments(index, text):
                spelled += [(index, character) for character in text]
            case _:
                spelled.append(part)
    return spelled


@pytest.mark.parametrize(
    ("given_", "expected"),
    [("call_0af", "0af"), ("toolu_0af", "0af"), ("call_XyZ", "call_XyZ"), ("call_", "call_"), ("0af", "0af"), ("", "")],
)
def test_only_our_own_ids_lose_their_prefix(given_: str, expected: str) -> None:
    assert bare(given_) == expected
