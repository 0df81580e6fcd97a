"""Chat requests: every name that clients use is understood, and what cannot be honoured is refused by name."""

import json
from typing import Any

import pytest

from services.gateway.dialects.chat.request import parse_chat
from services.gateway.errors import ApiError
from services.gateway.generation.preparation import jobs
from services.gateway.models.served_model import ServedModel
from services.gateway.requests.types import Conversation, GenerationRequest
from shared.law.sampling import choice_seed
from shared.wire.messages import Speculation

MESSAGES = [{"role": "user", "content": "hi"}]
MODEL = ServedModel(name="m", fingerprint="f", vocabulary="v", n_ctx=10, n_cells=40, created=0, exactness="law")


def request(**fields: Any) -> GenerationRequest:
    return parse_chat(json.dumps({"messages": MESSAGES, **fields}).encode()).generation()


def refusal(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        request(**fields)
    assert caught.value.status == 400
    return caught.value


def test_nothing_given_leaves_the_distribution_unchanged() -> None:
    plain = request()
    sampling = plain.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (1.0, 0, 1.0, 0.0)
    assert (plain.max_tokens, plain.stops, plain.top_logprobs, plain.choices) == (None, (), -1, 1)
    assert plain.speculation is Speculation.AUTO


def test_null_means_absent() -> None:
    assert request(temperature=None, stop=None, tools=None, response_format=None, n=None).choices == 1


def test_unknown_fields_are_ignored() -> None:
    assert request(zzz=1, user="me", reasoning_effort="low", prediction={}, store=True).choices == 1


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"])
def test_every_name_of_the_token_limit(name: str) -> None:
    assert request(**{name: 7}).max_tokens == 7
    assert request(**{name: -1}).max_tokens is None
    assert request(**{name: 0}).max_tokens == 0


@pytest.mark.parametrize("name", ["repetition_penalty", "repeat_penalty"])
def test_both_names_of_the_repetition_penalty(name: str) -> None:
    assert request(**{name: 1.3}).sampling.repetition_penalty == 1.3


@pytest.mark.parametrize(("given", "used"), [(5, 5), (0, 0), (-2, 2**64 - 2), (2**64 - 1, 2**64 - 1)])
def test_any_64_bit_seed(given: int, used: int) -> None:
    assert request(seed=given).sampling.seed == used


@pytest.mark.parametrize("fields", [{}, {"seed": -1}, {"seed": None}])
def test_no_seed_is_a_fresh_one(fields: dict[str, Any]) -> None:
    assert request(**fields).sampling.seed != request(**fields).sampling.seed


@pytest.mark.parametrize("bias", [{"5": 1, "3": -100.0}, [[5, 1], ["3", -100]]])
def test_both_forms_of_logit_bias(bias: Any) -> None:
    assert request(logit_bias=bias).sampling.logit_bias == ((3, -100.0), (5, 1.0))


@pytest.mark.parametrize("bias", [{"5": False, "3": 0, "4": 0.0}, [[5, False], ["3", 0], [4, 0.0]]])
def test_a_bias_of_false_bans_the_token(bias: Any) -> None:
    sampling = request(logit_bias=bias).sampling
    assert (sampling.logit_bias, sampling.banned) == (((3, 0.0), (4, 0.0)), (5,))


def test_any_number_of_stops_and_empty_ones_count_for_nothing() -> None:
    stops = [f"END{index}" for index in range(1000)]
    assert request(stop=["", *stops, ""]).stops == tuple(stops)
    assert request(stop="").stops == ()


def test_a_byte_order_mark_is_skipped() -> None:
    assert parse_chat(b'\xef\xbb\xbf{"messages": [{"role": "user", "content": "hi"}], "top_k": 3}').top_k == 3


def test_top_k_and_top_p_at_their_edges() -> None:
    assert request(top_k=-1).sampling.top_k == 0
    assert 0 < request(top_p=0).sampling.top_p < 1e-6


@pytest.mark.parametrize(("given", "used"), [("auto", "auto"), (True, "always"), (False, "off")])
def test_speculation(given: Any, used: str) -> None:
    assert request(speculative=given).speculation == used


def test_logprobs_without_top_are_the_chosen_token_s() -> None:
    assert request(logprobs=True).top_logprobs == 0
    assert request(logprobs=True, top_logprobs=3).top_logprobs == 3


def test_text_parts_are_joined_and_null_is_empty() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": None}]
    [prompt] = request(messages=messages).prompts
    assert isinstance(prompt, Conversation)
    assert [message["content"] for message in prompt.messages] == ["a\nb", ""]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": [{"role": "wizard", "content": ""}]}, "messages[0].role"),
        ({"messages": [*MESSAGES, {"role": "user", "content": [{"type": "image_url"}]}]}, "messages[1].content"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"n": 9}, "n"),
        ({"n": 0}, "n"),
        ({"stop": ["a" * 8192, "b" * 8193]}, "stop"),
        ({"stop": [1]}, "stop"),
        ({"max_tokens": -2}, "max_tokens"),
        ({"seed": 2**64}, "seed"),
        ({"logit_bias": {"hello": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"logit_bias": {"1": True}}, "logit_bias"),
        ({"logit_bias": [[1, True]]}, "logit_bias"),
        ({"logit_bias": [[False, 1]]}, "logit_bias"),
        ({"logit_bias": [[1, False, 2]]}, "logit_bias"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"speculative": "yes"}, "speculative"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
    ],
)
def test_the_field_at_fault_is_named(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)
    assert error.param == param
    assert "\n" not in error.message
    assert param in error.message


def test_an_unsupported_part_is_named_by_its_type() -> None:
    assert "image_url" in refusal(messages=[{"role": "user", "content": [{"type": "image_url"}]}]).message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("functions", [{}]),
        ("guided_future", 1),
        ("audio", {"voice": "x"}),
        ("modalities", ["text", "audio"]),
        ("logits_processors", ["x"]),
        ("mirostat", 2),
        ("dry_multiplier", 0.8),
        ("xtc_probability", 0.1),
        ("typical_p", 0.9),
        ("top_n_sigma", 1.0),
        ("chat_template", "{{ messages }}"),
        ("ignore_eos", True),
        ("min_tokens", 1),
        ("stop_token_ids", [1]),
    ],
)
def test_what_is_not_built_is_refused_by_name(name: str, value: Any) -> None:
    error = refusal(**{name: value})
    assert (error.param, error.code) == (name, "unsupported_parameter")


def test_what_is_not_built_is_harmless_when_off() -> None:
    off = {"tools": [], "functions": [], "response_format": {"type": "text"}, "grammar": "", "modalities": ["text"]}
    numbers = {"mirostat": 0, "dry_multiplier": 0.0, "xtc_probability": 0, "typical_p": 1.0, "top_n_sigma": -1}
    assert request(**off, **numbers, ignore_eos=False, min_tokens=0).choices == 1


@pytest.mark.parametrize("body", [b"", b"[1]", b"{", b'{"temperature": NaN}', b'{"x": "\\ud83d"}', b"\xff"])
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        parse_chat(body)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")


def test_the_answer_is_clamped_to_the_room() -> None:
    made = jobs(request(max_tokens=128_000), MODEL, 100, (1, 2, 3), 1000)
    assert made[0].max_tokens == 7
    assert jobs(request(), MODEL, 100, (1,) * 9, 1000)[0].max_tokens == 1
    assert jobs(request(max_tokens=0), MODEL, 100, (1,), 1000)[0].max_tokens == 1


def test_a_prompt_without_room_is_refused_with_both_numbers() -> None:
    with pytest.raises(ApiError, match=r"10 tokens > 9 maximum.*maximum context length is 10 tokens") as caught:
        jobs(request(), MODEL, 100, (1,) * 10, 1000)
    assert caught.value.code == "context_length_exceeded"


@pytest.mark.parametrize("bias", [1, False])
def test_a_bias_outside_the_vocabulary_is_refused(bias: float) -> None:
    with pytest.raises(ApiError) as caught:
        jobs(request(logit_bias={"100": bias}), MODEL, 100, (1,), 1000)
    assert caught.value.param == "logit_bias"


def test_each_choice_has_its_own_job_and_seed() -> None:
    made = jobs(request(n=3, seed=7), MODEL, 100, (1,), 1000)
    assert [job.sampling.seed for job in made] == [choice_seed(7, index) for index in range(3)]
    assert len({job.request_id for job in made}) == 3
