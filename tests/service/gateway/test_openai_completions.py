"""Completions of a text as the official client sees them: prompts, choices, echo, log-probabilities, usage."""

import json
from typing import Any

import openai
import pytest

from shared.model.llama.model import Model
from shared.wire.messages import Chunk, Finish, Job, TokenLogprob
from tests.service.scripted import EOG, MODEL, TEXTS, Script, fixed, speaking, stack
from tests.toy_format import ToyFormat

ASKED: dict[str, Any] = {"model": MODEL, "prompt": "Once"}


@pytest.mark.parametrize("echo", [False, True])
async def test_a_stream_and_a_whole_answer_hold_the_same_text(
    valkey_url: str, vocabulary: bytes, model: Model, echo: bool
) -> None:
    scripts = iter([speaking(model, text, 2) for text in TEXTS for _ in range(2)])
    async with stack(valkey_url, vocabulary, lambda job: next(scripts)(job)) as s, s.openai as client:
        for text in TEXTS:
            whole = await client.completions.create(**ASKED, echo=echo)
            stream = await client.completions.create(**ASKED, echo=echo, stream=True)
            chunks = [chunk async for chunk in stream]
            streamed = "".join(chunk.choices[0].text for chunk in chunks)
            assert whole.choices[0].text == streamed == ("Once" if echo else "") + text
            assert whole.choices[0].finish_reason == chunks[-1].choices[0].finish_reason == "stop"
            assert whole.object == chunks[0].object == "text_completion"


async def test_the_prompt_is_the_text_and_nothing_else(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    tokens = tuple(model.vocabulary.tokenize("Once upon"))
    async with stack(valkey_url, vocabulary, speaking(model, "Hi")) as s, s.openai as client:
        await client.completions.create(model=MODEL, prompt="Once upon")
        await client.completions.create(model=MODEL, prompt=tokens)
        assert [job.prompt for job in s.verifier.jobs] == [tokens, tokens]
        assert [job.max_tokens for job in s.verifier.jobs] == [16, 16]


def _repeating(model: Model) -> Script:
    """Says after each prompt what the prompt was."""
    return lambda job: speaking(model, f" {_text(model, job)}")(job)


def _text(model: Model, job: Job) -> str:
    return b"".join(model.vocabulary.piece(token) for token in job.prompt).decode()


async def test_choices_are_numbered_prompt_by_prompt(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    ids = model.vocabulary.tokenize("two")
    asked: dict[str, Any] = {"model": MODEL, "n": 2, "echo": True, "extra_body": {"prompt": ["one", ids]}, "prompt": ""}
    async with stack(valkey_url, vocabulary, _repeating(model)) as s, s.openai as client:
        whole = await client.completions.create(**asked)
        stream = await client.completions.create(**asked, stream=True, stream_options={"include_usage": True})
        chunks = [chunk async for chunk in stream]
        prompts = [job.prompt for job in s.verifier.jobs]
    assert [(choice.index, choice.text) for choice in whole.choices] == [
        (0, "one one"),
        (1, "one one"),
        (2, "two two"),
        (3, "two two"),
    ]
    for index, choice in enumerate(whole.choices):
        parts = [one.text for chunk in chunks for one in chunk.choices if one.index == index]
        assert "".join(parts) == choice.text
    assert whole.usage is not None
    assert whole.usage.prompt_tokens == len(prompts[0]) + len(ids)
    assert chunks[-1].usage == whole.usage
    assert chunks[-1].choices == []


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(("asked", "alternatives"), [(0, ()), (1, ((5, -0.25),))])
async def test_logprobs_have_their_old_shape(
    valkey_url: str,
    vocabulary: bytes,
    model: Model,
    streaming: bool,
    asked: int,
    alternatives: tuple[tuple[int, float], ...],
) -> None:
    """0 asks for the chosen token's; offsets count characters, wherever commits and held-back text end."""
    tokens = (*model.vocabulary.tokenize(" Grüße 😀!"), EOG)
    steps = [
        Chunk(tokens=(token,), logprobs=(TokenLogprob(float(-index), alternatives),), finish=finish)
        for index, token in enumerate(tokens)
        for finish in [Finish.STOP if index == len(tokens) - 1 else Finish.NONE]
    ]
    async with stack(valkey_url, vocabulary, fixed(*steps)) as s, s.openai as client:
        # A stop string that never comes holds text back.
        fields: dict[str, Any] = {**ASKED, "logprobs": asked, "stop": " 😀!?"}
        if streaming:
            stream = await client.completions.create(**fields, stream=True)
            given = [chunk.choices[0] async for chunk in stream]
        else:
            given = (await client.completions.create(**fields)).choices
        assert s.verifier.jobs[0].top_logprobs == asked
    text = "".join(choice.text for choice in given)
    lists: Any = [choice.logprobs for choice in given if choice.logprobs]
    names, offsets = ([item for one in lists for item in getattr(one, name)] for name in ("tokens", "text_offset"))
    values, tops = ([i for one in lists for i in getattr(one, name)] for name in ("token_logprobs", "top_logprobs"))
    assert values == [float(-index) for index in range(len(tokens))]
    assert names[-1] == "<|im_end|>"
    assert offsets[-1] == len(text)
    for name, offset in zip(names[:-1], offsets, strict=False):
        assert name.startswith("bytes:") or text[offset : offset + len(name)] == name
    assert any(name.startswith("bytes:") for name in names)
    assert all(top[name] == value for name, value, top in zip(names, values, tops, strict=True))
    assert {len(top) for top in tops} == {asked + 1}


async def test_marks_of_thinking_and_calls_are_text(
    valkey_url: str, vocabulary: bytes, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.gateway.models.served_model.detect", lambda *_: ToyFormat())
    text = "<think>Hm.</think><call f>{}</call>"
    async with stack(valkey_url, vocabulary, speaking(model, text)) as s, s.openai as client:
        choice = (await client.completions.create(**ASKED)).choices[0]
    assert (choice.text, choice.finish_reason) == (text, "stop")


async def test_a_stop_string_and_a_limit(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    script = speaking(model, "one two STOP three", finish=Finish.LENGTH)
    async with stack(valkey_url, vocabulary, script) as s, s.openai as client:
        stopped = (await client.completions.create(**ASKED, stop=[" STOP"])).choices[0]
        cut = (await client.completions.create(**ASKED)).choices[0]
    assert (stopped.text, stopped.finish_reason) == ("one two", "stop")
    assert (cut.text, cut.finish_reason) == ("one two STOP three", "length")


async def test_a_required_output_is_the_verifier_s_to_keep(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "{}")) as s, s.openai as client:
        await client.completions.create(**ASKED, extra_body={"response_format": {"type": "json_object"}})
        assert "object" in s.verifier.jobs[0].grammar


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"prompt": [[1, 49152]]}, "prompt", None),
        ({"prompt": [-1]}, "prompt", None),
        ({"prompt": "word " * 600}, "prompt", "context_length_exceeded"),
        ({"prompt": ""}, "prompt", None),
        ({"suffix": "end"}, "suffix", "unsupported_parameter"),
    ],
)
async def test_refusals_name_the_field(
    valkey_url: str, vocabulary: bytes, fields: dict[str, Any], param: str, code: str | None
) -> None:
    async with stack(valkey_url, vocabulary) as s, s.openai as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.completions.create(**{**ASKED, **fields}, stream=True)
    assert (caught.value.param, caught.value.code) == (param, code)


@pytest.mark.parametrize("path", ["/v1/completions", "/completions"])
async def test_the_path_with_and_without_its_version(
    valkey_url: str, vocabulary: bytes, model: Model, path: str
) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "Hi")) as s:
        assert json.loads(await s.transcript(path, prompt="Once"))["choices"][0]["text"] == "Hi"
