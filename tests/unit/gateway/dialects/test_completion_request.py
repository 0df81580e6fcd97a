"""Completion requests: prompts in every form, the limit that clients count on, and refusals by name."""

import json
from typing import Any

import pytest

from services.gateway.dialects.completions.request import parse_completion
from services.gateway.errors import ApiError
from services.gateway.requests.types import Document, GenerationRequest


def request(**fields: Any) -> GenerationRequest:
    return parse_completion(json.dumps({"prompt": "p", **fields}).encode()).generation()


def refusal(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        request(**fields)
    assert caught.value.status == 400
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.parametrize(
    ("prompt", "contents"),
    [
        ("a", ["a"]),
        ("", [""]),
        ([1, 2], [(1, 2)]),
        (["a", "b"], ["a", "b"]),
        ([[1], [2, 3]], [(1,), (2, 3)]),
        (["a", [1]], ["a", (1,)]),
    ],
)
def test_prompts_in_every_form(prompt: Any, contents: list[Any]) -> None:
    made = request(prompt=prompt)
    assert made.prompts == tuple(Document(content=content) for content in contents)
    assert not made.converses


@pytest.mark.parametrize("prompt", [[], [[]], [1, "a"], [1.5], [True], {"a": 1}, 3, [None]])
def test_a_prompt_in_another_form_is_refused(prompt: Any) -> None:
    assert refusal(prompt=prompt).param == "prompt"


def test_the_prompt_is_required() -> None:
    assert refusal(prompt=None).code == "missing_required_parameter"


def test_an_answer_has_16_tokens_unless_something_else_is_said() -> None:
    assert request().max_tokens == 16
    assert request(max_tokens=None).max_tokens == 16
    assert request(max_tokens=100).max_tokens == 100
    assert request(n_predict=3).max_tokens == 3
    assert request(max_tokens=-1).max_tokens is None
    assert request(max_tokens=0).max_tokens == request(n_predict=0, max_completion_tokens=5).max_tokens == 0


@pytest.mark.parametrize(("given", "used"), [(None, -1), (False, -1), (0, 0), (5, 5)])
def test_no_logprobs_and_the_chosen_token_s_only_are_different(given: Any, used: int) -> None:
    assert request(logprobs=given).top_logprobs == used


def test_a_required_output() -> None:
    output = request(grammar='root ::= "a"').output
    assert output is not None
    assert (output.kind, output.param) == ("gbnf", "grammar")


def test_best_of_as_many_as_asked_for_is_harmless() -> None:
    assert request(best_of=1).choices == 1
    assert request(n=2, best_of=2).choices == 2


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"suffix": "end"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"echo": True, "logprobs": 0}, "logprobs"),
        ({"prompt_logprobs": 0}, "prompt_logprobs"),
        ({"prompt": ["a"] * 129}, "prompt"),
        ({"prompt": ["a"] * 33, "n": 4}, "prompt"),
        ({"max_tokens": -2}, "max_tokens"),
        ({"logprobs": 21}, "logprobs"),
        ({"n": 0}, "n"),
        ({"min_tokens": 3}, "min_tokens"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)
    assert error.param == param
    assert param in error.message


def test_an_empty_suffix_and_no_echo_are_harmless() -> None:
    assert request(suffix="", echo=False, prompt_logprobs=False).choices == 1
