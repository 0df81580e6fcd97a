"""How a template is told to think, and what it does not hear."""

import pytest

from services.gateway.formats.thinking import ThinkingSpan, thinking_style
from services.gateway.requests.types import Reasoning

SWITCH = "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>{% endif %}"
EFFORT = "Reasoning: {{ reasoning_effort }}"
WORDS = "{% if reasoning_effort not in ['none', 'high'] %}{{ raise_exception('no') }}{% endif %}[THINK]"
BUDGET = "<seed:think>{% if thinking_budget is defined %}{{ thinking_budget }}{% endif %}"
DEAF = "<think>\n"


@pytest.mark.parametrize(
    ("template", "reasoning", "variables"),
    [
        (SWITCH, Reasoning(), {}),
        (SWITCH, Reasoning(enabled=False), {"enable_thinking": False}),
        (SWITCH, Reasoning(enabled=True), {"enable_thinking": True}),
        (SWITCH, Reasoning(effort="none"), {"enable_thinking": False}),
        (SWITCH, Reasoning(effort="low"), {"enable_thinking": True}),
        (SWITCH, Reasoning(budget=0), {"enable_thinking": False}),
        (SWITCH, Reasoning(budget=100), {"enable_thinking": True}),
        (SWITCH, Reasoning(enabled=False, effort="high"), {"enable_thinking": False}),
        ("{% if not thinking %}</think>{% endif %}", Reasoning(enabled=False), {"thinking": False}),
        (EFFORT, Reasoning(), {}),
        (EFFORT, Reasoning(effort="none"), {"reasoning_effort": "low"}),
        (EFFORT, Reasoning(effort="minimal"), {"reasoning_effort": "low"}),
        (EFFORT, Reasoning(effort="medium"), {"reasoning_effort": "medium"}),
        (EFFORT, Reasoning(effort="max"), {"reasoning_effort": "high"}),
        (EFFORT, Reasoning(effort="extreme"), {"reasoning_effort": "extreme"}),
        (WORDS, Reasoning(effort="minimal"), {"reasoning_effort": "high"}),
        (WORDS, Reasoning(enabled=False), {"reasoning_effort": "none"}),
        (BUDGET, Reasoning(budget=512), {"thinking_budget": 512}),
        (BUDGET, Reasoning(enabled=False), {"thinking_budget": 0}),
        (BUDGET, Reasoning(enabled=True), {}),
        (DEAF, Reasoning(enabled=True, effort="high", budget=9), {}),
        ("enable_thinking {{ 'reasoning_effort' }} {{ message.thinking }}", Reasoning(enabled=True, effort="low"), {}),
    ],
)
def test_variables_are_those_that_the_template_reads(
    template: str, reasoning: Reasoning, variables: dict[str, object]
) -> None:
    assert thinking_style(template).variables(reasoning) == variables


@pytest.mark.parametrize(
    ("template", "reasoning", "budget"),
    [
        (DEAF, Reasoning(), None),
        (DEAF, Reasoning(budget=7), 7),
        (DEAF, Reasoning(enabled=False), 0),
        (DEAF, Reasoning(effort="none"), 0),
        (SWITCH, Reasoning(enabled=False), None),
        (SWITCH, Reasoning(budget=7), 7),
        (WORDS, Reasoning(effort="none"), None),
    ],
)
def test_a_model_that_cannot_be_told_not_to_think_is_stopped_at_once(
    template: str, reasoning: Reasoning, budget: int | None
) -> None:
    assert thinking_style(template).budget(reasoning) == budget


@pytest.mark.parametrize(
    ("template", "start"), [(SWITCH, "<think>"), (BUDGET, "<seed:think>"), (WORDS, "[THINK]"), ("no marks", None)]
)
def test_the_span_is_the_one_whose_marks_the_template_has(template: str, start: str | None) -> None:
    span = thinking_style(template).span
    assert (span.start if span else None) == start
    assert span is None or (isinstance(span, ThinkingSpan) and span.close.endswith(span.end))
