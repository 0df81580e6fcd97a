"""What the gateway answers: text, frames, fields, statistics, whatever the commits behind them."""

import asyncio
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.generation.choice import Choice, Delta
from services.gateway.generation.preparation import Reading
from services.gateway.models.served_model import Lexicon
from shared.law.sampling import choice_seed
from shared.model.llama.model import Model
from shared.wire.messages import Chunk, Finish, Speculation, TokenLogprob
from tests.examples import few
from tests.service.scripted import EOG, HI, MESSAGES, MODEL, TEXTS, cut, fixed, speaking, stack


@pytest.mark.parametrize("width", [1, 2, 5])
async def test_a_stream_and_a_whole_answer_hold_the_same_text(
    valkey_url: str, vocabulary: bytes, model: Model, width: int
) -> None:
    scripts = iter([speaking(model, text, width) for text in TEXTS for _ in range(2)])
    async with stack(valkey_url, vocabulary, lambda job: next(scripts)(job)) as s, s.openai as client:
        for text in TEXTS:
            whole = await client.chat.completions.create(model=MODEL, messages=MESSAGES)
            stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
            streamed = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            assert whole.choices[0].message.content == streamed == text
            assert whole.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("width", [1, 2, 100])
async def test_a_stop_string_ends_the_answer_and_its_job(
    valkey_url: str, vocabulary: bytes, model: Model, width: int
) -> None:
    tokens = model.vocabulary.tokenize("one two STOP three four")
    pieces = [model.vocabulary.piece(token).decode() for token in tokens]
    counted = next(n for n in range(len(pieces)) if "STOP" in "".join(pieces[:n]))
    # The verifier goes on for ever, as far as this request knows.
    endless = fixed(*cut(tokens, width, Finish.NONE), asyncio.Event())
    async with stack(valkey_url, vocabulary, endless) as s:
        frames = await s.frames(stop=["###", " STOP"], stream_options={"include_usage": True})
        text = "".join(frame["choices"][0]["delta"].get("content", "") for frame in frames[:-2])
        assert text == "one two"
        assert frames[-3]["choices"][0]["finish_reason"] == "stop"
        assert frames[-2]["usage"]["completion_tokens"] == counted
        assert await s.terminal(s.verifier.jobs[0].request_id) is Finish.CANCELLED


@settings(max_examples=few(60))
@given(data=st.data())
def test_any_split_into_commits_gives_the_same_answer(model: Model, data: st.DataObject) -> None:
    lexicon = Lexicon(model)
    text = data.draw(st.text("ab 😀漢🇩🇪\u200d", max_size=30))
    tokens = [*model.vocabulary.tokenize(text), *data.draw(st.lists(st.integers(0, 49151), max_size=4))]
    stops = data.draw(st.lists(st.text("ab 😀", min_size=1, max_size=3), max_size=2))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(tokens)), max_size=6)))
    bounds = [0, *cuts, len(tokens)]

    def answer(parts: list[list[int]]) -> tuple[str, Any]:
        choice, text = Choice(0, Reading(piece=lexicon.piece, stops=tuple(stops))), ""
        for index, part in enumerate(parts):
            finish = Finish.LENGTH if index == len(parts) - 1 else Finish.NONE
            for event in choice.take(Chunk(tokens=tuple(part), finish=finish)):
                if isinstance(event, Delta):
                    text += event.text
                else:
                    return text, (cast(Any, event).reason, cast(Any, event).tokens)
        raise AssertionError("no finish")

    split = [tokens[start:end] for start, end in pairwise(bounds)]
    assert answer(split) == answer([tokens]) == answer([*([token] for token in tokens), []])


async def test_the_frames_of_a_stream(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    script = fixed(
        Chunk(tokens=tuple(model.vocabulary.tokenize("Hi")), drafted=2, accepted=0, tried=1, cached=3),
        Chunk(
            tokens=(*model.vocabulary.tokenize(" there"), EOG),
            finish=Finish.STOP,
            sources=("d", ""),
            drafted=1,
            accepted=1,
            tried=1,
        ),
    )
    async with stack(valkey_url, vocabulary, script) as s:
        *chunks, usage, done = await s.frames(stream_options={"include_usage": True}, seed=5)
    assert done == "[DONE]"
    assert chunks[0]["choices"] == [
        {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    ]
    assert [chunk["choices"][0]["delta"] for chunk in chunks[1:]] == [{"content": "Hi"}, {"content": " there"}, {}]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "stop"]
    assert {(chunk["id"], chunk["created"], chunk["model"]) for chunk in [*chunks, usage]} == {
        (usage["id"], usage["created"], MODEL)
    }
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 3
    assert usage["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}
    assert usage["usage"]["total_tokens"] == usage["usage"]["prompt_tokens"] + 3
    assert all("usage" not in chunk for chunk in chunks)
    assert chunks[-1]["seed"] == 5
    assert chunks[-1]["speculative"] == {
        "drafted": 3,
        "accepted": 1,
        "rounds": 2,
        "tokens_per_round": 1.5,
        "acceptance_rate": 0.3333,
        "acceptance_per_offset": [0.5],
        "reason": None,
        "by_source": {"d": 1},
    }


@pytest.mark.parametrize("cached", [0, 4, 10_000])
async def test_a_whole_answer_says_how_much_of_its_prompt_was_cached(
    cached: int, valkey_url: str, vocabulary: bytes, model: Model
) -> None:
    """Never more than the prompt: a verifier that took over may have found the answer's beginning too."""
    first = Chunk(tokens=tuple(model.vocabulary.tokenize("Hi")), cached=cached)
    script = fixed(first, Chunk(tokens=(EOG,), finish=Finish.STOP, cached=7))
    async with stack(valkey_url, vocabulary, script) as s:
        _, body = await s.post()
    usage = body["usage"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": min(cached, usage["prompt_tokens"])}


async def test_usage_comes_only_when_asked_for(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "Hi")) as s:
        assert all(frame["choices"] for frame in (await s.frames())[:-1])


async def test_logprobs_have_openai_s_shape_streamed_and_whole(
    valkey_url: str, vocabulary: bytes, model: Model
) -> None:
    tokens = (*model.vocabulary.tokenize(" é"), EOG)
    logprobs = tuple(TokenLogprob(-0.5, ((token, -0.5), (5, float("-inf")))) for token in tokens)
    script = fixed(Chunk(tokens=tokens, logprobs=logprobs, finish=Finish.STOP))
    async with stack(valkey_url, vocabulary, script) as s, s.openai as client:
        asked: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "logprobs": True, "top_logprobs": 2}
        whole = await client.chat.completions.create(**asked)
        stream = await client.chat.completions.create(**asked, stream=True)
        streamed = [entry async for chunk in stream for entry in (chunk.choices[0].logprobs or NO_LOGPROBS).content]
        assert s.verifier.jobs[0].top_logprobs == 2
    entries = (whole.choices[0].logprobs or NO_LOGPROBS).content
    assert [entry.model_dump() for entry in entries] == [entry.model_dump() for entry in streamed]
    assert bytes(byte for entry in entries[:-1] for byte in entry.bytes or []) == " é".encode()
    assert entries[-1].token == "<|im_end|>"
    assert entries[0].top_logprobs[1].logprob == -9999.0


class _NoLogprobs:
    content: Any = ()


NO_LOGPROBS = _NoLogprobs()


async def test_each_of_n_choices_is_a_job_of_its_own_seed(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    texts = iter(["one", "two", "one", "two"])
    async with stack(valkey_url, vocabulary, lambda job: speaking(model, next(texts))(job)) as s:
        status, body = await s.post(n=2, seed=9)
        assert status == 200
        assert sorted(choice["message"]["content"] for choice in body["choices"]) == ["one", "two"]
        assert {job.sampling.seed for job in s.verifier.jobs} == {9, choice_seed(9, 1)}
        assert body["usage"]["completion_tokens"] == 4
        assert body["speculative"]["rounds"] == sum(choice["speculative"]["rounds"] for choice in body["choices"])
        frames = await s.frames(n=2)
    finishes = [f["choices"][0]["index"] for f in frames[:-1] if f["choices"][0]["finish_reason"]]
    assert sorted(finishes) == [0, 1]


async def test_ids_and_trace_on_request(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    tokens = tuple(model.vocabulary.tokenize("Hi 😀"))
    script = fixed(Chunk(tokens=tokens, sources=("d", *[""] * (len(tokens) - 1)), finish=Finish.LENGTH))
    async with stack(valkey_url, vocabulary, script) as s:
        _, body = await s.post(return_token_ids=True, speculative_trace=True)
        frames = await s.frames(return_token_ids=True, speculative_trace=True)
    choice = body["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["token_ids"] == list(tokens) == frames[1]["choices"][0]["token_ids"]
    assert "".join(entry["text"] for entry in choice["trace"]) == "Hi 😀"
    assert [entry["source"] for entry in choice["trace"]][:2] == ["d", ""]
    assert choice["trace"] == frames[1]["choices"][0]["trace"]


async def test_a_trace_says_where_a_guess_was_refused(valkey_url: str, vocabulary: bytes) -> None:
    script = fixed(
        Chunk(tokens=(HI, HI), sources=("d", ""), drafted=2, accepted=1, tried=2),
        Chunk(tokens=(HI, HI), sources=("d", ""), drafted=1, accepted=1, tried=1, finish=Finish.LENGTH),
    )
    async with stack(valkey_url, vocabulary, script) as s:
        _, body = await s.post(speculative_trace=True)
    assert [entry["refused"] for entry in body["choices"][0]["trace"]] == [False, True, False, False]


async def test_the_job_is_what_was_asked_for(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "Hi")) as s:
        status, body = await s.post(
            model="default", max_completion_tokens=128_000, speculative=False, temperature=0, cache_prompt=False
        )
        [job] = s.verifier.jobs
    assert (status, body["model"], body["system_fingerprint"]) == (200, MODEL, "strict-" + "f" * 32)
    assert job.max_tokens == 512 - len(job.prompt)
    assert (job.speculation, job.cache_prompt, job.sampling.temperature) == (Speculation.OFF, False, 0.0)
    rendered = b"".join(model.vocabulary.piece(token, special=True) for token in job.prompt).decode()
    assert rendered.endswith("<|im_start|>user\nSay something.<|im_end|>\n<|im_start|>assistant\n")
