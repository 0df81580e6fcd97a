"""Conversations are adapted to what a chat template can render, and earlier turns never change as they grow."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from services.gateway.prompts.capabilities import Capabilities, probe
from services.gateway.prompts.conversation import adapt
from services.gateway.prompts.rendering import Renderer
from services.gateway.prompts.template import ChatTemplate, TemplateError
from services.gateway.requests.types import Conversation, Tool
from services.gateway.storage.kept_turns import KeptTurn, behind
from tests import templates

ABLE = Capabilities()


def turn(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def call(id: str, name: str = "look", arguments: str = '{"at": "x"}') -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def contents(messages: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in messages]


# ---------------------------------------------------------------- what templates can do


@pytest.mark.parametrize(
    ("source", "able"),
    [
        (templates.CHATML, Capabilities(tools=False)),
        (templates.HERMES, Capabilities()),
        (templates.STRICT, Capabilities(system_anywhere=False, tools=False)),
        (templates.NO_SYSTEM, Capabilities(system=False, system_anywhere=False, tools=False)),
        (templates.TYPED, Capabilities(typed=True, tools=False)),
        (templates.TEXT_ARGUMENTS, Capabilities(text_arguments=True)),
    ],
)
def test_capabilities_are_found_by_rendering(source: str, able: Capabilities) -> None:
    assert probe(ChatTemplate(source)) == able


# ---------------------------------------------------------------- system messages


def test_developer_messages_are_system_messages_and_leading_ones_are_one() -> None:
    messages = [turn("system", "a"), turn("developer", "b"), turn("user", "hi")]
    assert contents(adapt(messages, ABLE)) == [("system", "a\n\nb"), ("user", "hi")]


def test_later_system_messages_stay_in_place_where_the_template_renders_them() -> None:
    messages = [turn("user", "hi"), turn("developer", "b"), turn("user", "more")]
    assert contents(adapt(messages, ABLE)) == [("user", "hi"), ("system", "b"), ("user", "more")]


@pytest.mark.parametrize(
    ("messages", "folded"),
    [
        ("u s", [("user", "u0\n\ns1")]),
        ("s u s a u", [("system", "s0"), ("user", "u1\n\ns2"), ("assistant", "a3"), ("user", "u4")]),
        ("u a s u", [("user", "u0"), ("assistant", "a1"), ("user", "s2\n\nu3")]),
        ("u a s", [("user", "u0"), ("assistant", "a1"), ("user", "s2")]),
        ("u a t t s", [("user", "u0"), ("assistant", "a1"), ("tool", "t2"), ("tool", "t3\n\ns4")]),
        ("u a s t", [("user", "u0"), ("assistant", "a1"), ("tool", "s2\n\nt3")]),
        ("s s u", [("system", "s0\n\ns1"), ("user", "u2")]),
    ],
)
def test_elsewhere_they_join_their_neighbour_and_none_comes_between_a_call_and_its_result(
    messages: str, folded: list[tuple[str, str]]
) -> None:
    roles = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}
    given = [turn(roles[short], f"{short}{index}") for index, short in enumerate(messages.split())]
    able = Capabilities(system_anywhere=False)
    assert contents(adapt(given, able)) == folded
    for length in range(1, len(given)):
        # Whatever is appended later, the turns before the last one stay as they were.
        shorter = contents(adapt(given[:length], able))
        assert contents(adapt(given, able))[: len(shorter) - 1] == shorter[:-1]


def test_without_system_role_the_first_user_says_it() -> None:
    able = Capabilities(system=False, system_anywhere=False)
    assert contents(adapt([turn("system", "s"), turn("user", "u")], able)) == [("user", "s\n\nu")]
    assert contents(adapt([turn("system", "s")], able)) == [("user", "s")]


# ---------------------------------------------------------------- calls and results


def test_arguments_are_what_the_template_wants() -> None:
    messages = [turn("assistant", "", tool_calls=[call("1")])]
    [as_object] = adapt(messages, ABLE)
    [as_text] = adapt(messages, Capabilities(text_arguments=True))
    assert as_object["tool_calls"][0]["function"]["arguments"] == {"at": "x"}
    assert as_text["tool_calls"][0]["function"]["arguments"] == '{"at": "x"}'
    assert messages[0]["tool_calls"][0]["function"]["arguments"] == '{"at": "x"}'


def test_a_template_without_tools_gets_calls_and_results_as_text() -> None:
    messages = [
        turn("user", "u"),
        turn("assistant", "", tool_calls=[call("1"), call("2", "stop", "{}")]),
        turn("tool", "one", tool_call_id="1"),
        turn("tool", "two", tool_call_id="2"),
    ]
    able = Capabilities(tools=False)
    assert contents(adapt(messages, able, preamble="how to call")) == [
        ("system", "how to call"),
        ("user", "u"),
        (
            "assistant",
            '<tool_call>\n{"name": "look", "arguments": {"at": "x"}}\n</tool_call>\n'
            '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>',
        ),
        ("user", "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>"),
    ]


def test_typed_templates_get_parts() -> None:
    assert adapt([turn("user", "u")], Capabilities(typed=True))[0]["content"] == [{"type": "text", "text": "u"}]


# ---------------------------------------------------------------- prompts


def renderer(source: str) -> Renderer:
    return Renderer(ChatTemplate(source), lambda id: id, lambda tools: f"tools: {[tool.name for tool in tools]}")


def rendered(
    source: str, *messages: dict[str, Any], turns: dict[str, KeptTurn] | None = None, **options: Any
) -> list[Any]:
    conversation = Conversation(messages=messages, continues=options.get("continues", False))
    return renderer(source).render(conversation, {}, options.get("tools", ()), turns or {})


def test_tools_are_explained_to_templates_that_know_none() -> None:
    tools = [Tool(name="look")]
    assert "system: tools: ['look']" in rendered(templates.CHATML, turn("user", "u"), tools=tools)[0]
    assert "tools: [" not in rendered(templates.HERMES, turn("user", "u"), tools=tools)[0]


def test_an_answer_goes_on_from_where_the_assistant_s_last_message_ends() -> None:
    pieces = rendered(templates.CHATML, turn("user", "u"), turn("assistant", "Once upon"), continues=True)
    assert "".join(pieces) == "[user: u]\n[assistant: Once upon"


def test_a_template_s_refusal_is_in_its_own_words() -> None:
    with pytest.raises(TemplateError, match=r"^roles must alternate$"):
        rendered(templates.STRICT, turn("user", "a"), turn("user", "b"))


KEPT = KeptTurn((7, 8, 9), "", (("look", '{"at":"x"}'),))
HISTORY = (
    turn("user", "u"),
    turn("assistant", "", tool_calls=[call("c1")]),
    turn("tool", "result", tool_call_id="c1"),
)


@pytest.mark.parametrize("source", [templates.HERMES, templates.CHATML])
def test_a_kept_turn_is_rendered_as_its_own_tokens(source: str) -> None:
    before, tokens, after = rendered(source, *HISTORY, turns={"c1": KEPT})
    assert tokens == (7, 8, 9)
    [plain] = rendered(source, *HISTORY)
    assert plain.startswith(before)
    assert plain.endswith(after)
    assert before.endswith("[assistant: ")
    assert after.startswith("]\n")


def test_two_kept_turns_keep_their_places() -> None:
    other = KeptTurn((1,), "so", (("look", "{}"),))
    more = [turn("assistant", "so", tool_calls=[call("c2", "look", "{}")]), turn("tool", "r2", tool_call_id="c2")]
    pieces = rendered(templates.HERMES, *HISTORY, *more, turns={"c1": KEPT, "c2": other})
    assert [piece for piece in pieces if isinstance(piece, tuple)] == [(7, 8, 9), (1,)]


@pytest.mark.parametrize(
    "changed",
    [
        turn("assistant", "more text", tool_calls=[call("c1")]),
        turn("assistant", "", tool_calls=[call("c1", "other")]),
        turn("assistant", "", tool_calls=[call("c1", "look", '{"at": "y"}')]),
        turn("assistant", "", tool_calls=[call("c1"), call("c3")]),
    ],
)
def test_what_the_client_changed_is_rendered_anew(changed: dict[str, Any]) -> None:
    messages = (HISTORY[0], changed, HISTORY[2])
    assert rendered(templates.HERMES, *messages, turns={"c1": KEPT}) == rendered(templates.HERMES, *messages)


def test_a_template_whose_calls_are_no_plain_turn_renders_them_itself() -> None:
    messages = HISTORY
    assert rendered(templates.CHANNELS, *messages, turns={"c1": KEPT}) == rendered(templates.CHANNELS, *messages)


# ---------------------------------------------------------------- what is kept


@pytest.mark.parametrize(
    ("pieces", "kept"),
    [
        (["<call>", "x"], [0, 1]),
        (["hm", "</think>", "\n\n", "<call>", "x"], [3, 4]),
        (["</think>", "a", "</think>", "b"], [3]),
        (["hm</thi", "nk>\n", "<call>"], [2]),
        (["hm</think> <call>", "x"], []),
        (["hm</think>", " \n"], []),
    ],
)
def test_a_turn_s_tokens_begin_behind_its_thinking(pieces: list[str], kept: list[int]) -> None:
    assert behind(range(len(pieces)), lambda token: pieces[token].encode(), "</think>") == tuple(kept)
