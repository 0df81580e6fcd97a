"""Templates of the shape that public models have, and the format that each is taken for."""

import re

import pytest

from services.gateway.formats.detect import detect
from services.gateway.requests.types import Reasoning, Tool
from tests import templates
from tests.unit.gateway.formats.reading import no_tokens

CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
HERMES = CHATML + '{% if tools %}{{ tools }}<tool_call>\n{"name": N, "arguments": A}\n</tool_call>{% endif %}'
KNOWN = {
    "hermes": (HERMES, "hermes", None),
    "qwen3": (HERMES + "{% if not enable_thinking %}<think>\n\n</think>{% endif %}", "hermes", "<think>"),
    "qwen3-coder": (CHATML + "{{ tools }}<tool_call>\n<function=f>\n<parameter=p>\n", "qwen-xml", None),
    "seed-oss": ("{{ tools }}<seed:tool_call><function=f><parameter=p><seed:think>", "seed-xml", "<seed:think>"),
    "llama3": ('{{ tools }}<|python_tag|>{"name": f, "parameters": p} ipython', "llama3", None),
    "mistral": ("[AVAILABLE_TOOLS]{{ tools }}[/AVAILABLE_TOOLS][TOOL_CALLS][", "mistral", None),
    "magistral": ("{{ tools }}[TOOL_CALLS]{{ f }}[ARGS]{{ a }}[THINK][/THINK]", "mistral", "[THINK]"),
    "gpt-oss": (
        "{{ tools }}<|start|>assistant<|channel|>final<|message|>",
        "harmony",
        "<|channel|>analysis<|message|>",
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_format_is_told_from_its_marks(name: str) -> None:
    template, expected, start = KNOWN[name]
    format = detect(template, no_tokens, True)
    assert format.name == expected
    assert (format.span.start if format.span else None) == start
    assert format.takes_tools
    assert format.instructions([Tool(name="go")]) == ""


@pytest.mark.parametrize(
    ("template", "tools"),
    [
        (CHATML, False),
        (HERMES, False),  # whatever it mentions, it does not render them
        (templates.CHATML, False),
        ("{{ tools }}<tool_call>f<arg_key>k</arg_key>", True),  # another form in tags of the same name
        ("{{ tools }}<｜tool▁calls▁begin｜>", True),
    ],
)
def test_unknown_ways_to_call_give_way_to_our_own(template: str, tools: bool) -> None:
    format = detect(template, no_tokens, tools)
    assert format.name == "hermes"
    assert not format.takes_tools
    text = format.instructions([Tool(name="go", description="Goes."), Tool(name="stop")])
    assert '"go"' in text
    assert '"stop"' in text
    assert "Goes." in text
    assert "<tool_call>" in text
    assert format.instructions([]) == ""


def test_no_template_is_plain_text() -> None:
    assert detect(None, no_tokens, False).name == "plain"


def test_a_mark_of_thinking_counts_without_tools() -> None:
    format = detect(CHATML + "<think>\n", no_tokens, False)
    assert format.span is not None
    assert format.budget(Reasoning(enabled=False)) == 0


def test_ids_have_the_shape_that_mistral_insists_on() -> None:
    mistral, hermes = (detect(KNOWN[name][0], no_tokens, True) for name in ("mistral", "hermes"))
    ids = [mistral.call_id(f"call_{number}") for number in range(100)]
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", id) for id in ids)
    assert len(set(ids)) == 100
    assert mistral.call_id("call_1") == mistral.call_id("call_1")
    assert mistral.call_id("abc12DEF9") == "abc12DEF9"
    assert hermes.call_id("call_1") == "call_1"
