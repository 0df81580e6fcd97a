"""The routes beside generation: models, tokens, templates, properties and slots, as clients ask for them."""

from typing import Any

import pytest
from anthropic import AsyncAnthropic

from shared.model.llama.model import Model
from shared.wire.messages import RequestStatus
from tests.service.scripted import HI, MODEL, Stack, card, speaking, stack

TURNS = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]


async def get(s: Stack, path: str, status: int = 200) -> Any:
    async with s.session.get(s.url + path) as response:
        assert response.status == status
        return await response.json()


async def post(s: Stack, path: str, status: int = 200, **body: Any) -> Any:
    async with s.session.post(s.url + path, json=body) as response:
        assert response.status == status, await response.text()
        return await response.json()


async def test_a_model_tells_its_context_under_every_name(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary) as s:
        listed = await get(s, "/v1/models")
        again = await get(s, "/models")
        one = await get(s, f"/v1/models/{MODEL}")
        latest = await get(s, f"/v1/models/{MODEL}:latest")
        loaded = await get(s, "/api/v0/models")
    assert listed == again
    assert listed["data"] == [one] == [latest]
    for field in ("context_window", "context_length", "max_context_length", "max_model_len"):
        assert one[field] == 512
    assert one["meta"]["n_ctx"] == 512
    assert (one["created"], one["exactness"]) == (1, "strict")
    assert loaded["data"][0]["max_context_length"] == 512
    assert loaded["data"][0]["quantization"] == "Q4_1"


async def test_anthropic_s_client_lists_models(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary) as s, AsyncAnthropic(base_url=s.url, api_key="x") as client:
        models = [model async for model in client.models.list()]
        one = await client.models.retrieve(MODEL)
    assert [model.id for model in models] == [one.id] == [MODEL]
    assert one.max_input_tokens == 511


async def test_codex_finds_an_empty_catalogue_and_others_find_none(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary) as s:
        assert (await get(s, "/v1/models?client_version=0.171.0"))["models"] == []
        assert "models" not in await get(s, "/v1/models")


@pytest.mark.parametrize("text", ["Hello 😀 world", "", "漢字 <|im_end|>", " a\n"])
async def test_tokens_come_back_as_the_text(valkey_url: str, vocabulary: bytes, model: Model, text: str) -> None:
    async with stack(valkey_url, vocabulary) as s:
        asks: list[tuple[str, dict[str, Any]]] = [
            ("/tokenize", {"content": text}),
            ("/v1/tokenize", {"model": MODEL, "prompt": text}),
        ]
        for path, body in asks:
            answer = await post(s, path, **body)
            assert answer["tokens"] == model.vocabulary.tokenize(text)
            assert (answer["count"], answer["max_model_len"]) == (len(answer["tokens"]), 512)
            back = await post(s, path.replace("token", "detoken"), tokens=answer["tokens"])
            assert back["content"] == back["prompt"] == text


async def test_pieces_are_text_or_bytes(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    async with stack(valkey_url, vocabulary) as s:
        pieces = (await post(s, "/tokenize", content="Hi 😀", with_pieces=True))["tokens"]
        strings = (await post(s, "/tokenize", prompt="Hi", return_token_strs=True))["token_strs"]
    spelled = b"".join(
        one["piece"].encode() if isinstance(one["piece"], str) else bytes(one["piece"]) for one in pieces
    )
    assert spelled.decode() == "Hi 😀"
    assert any(isinstance(one["piece"], list) for one in pieces)
    assert strings == ["Hi"]


async def test_marks_are_read_as_text_on_request_and_ids_stay(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary) as s:
        marks = await post(s, "/tokenize", content="<|im_end|>")
        letters = await post(s, "/tokenize", content="<|im_end|>", parse_special=False)
        mixed = await post(s, "/tokenize", content=["Hi", 5])
    assert marks["count"] == 1 < letters["count"]
    assert mixed["tokens"] == [HI, 5]


async def test_messages_are_counted_as_a_request_would_have_them(
    valkey_url: str, vocabulary: bytes, model: Model
) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "Hi")) as s:
        answer = await post(s, "/tokenize", messages=TURNS)
        rendered = await post(s, "/apply-template", messages=TURNS)
        status, whole = await s.post(messages=TURNS)
        [job] = s.verifier.jobs
    assert status == 200
    assert tuple(answer["tokens"]) == job.prompt
    assert whole["usage"]["prompt_tokens"] == answer["count"]
    assert model.vocabulary.tokenize(rendered["prompt"]) == answer["tokens"]
    assert "Be brief." in rendered["prompt"]


@pytest.mark.parametrize(
    ("path", "param", "body"),
    [
        ("/tokenize", "content", {}),
        ("/tokenize", "content", {"content": [49152]}),
        ("/tokenize", "messages", {"messages": []}),
        ("/detokenize", "tokens", {}),
        ("/detokenize", "tokens", {"tokens": [1 << 30]}),
        ("/detokenize", "tokens[0]", {"tokens": [-1]}),
        ("/apply-template", "messages", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
    ],
)
async def test_what_has_no_tokens_is_refused(
    valkey_url: str, vocabulary: bytes, path: str, param: str, body: dict[str, Any]
) -> None:
    async with stack(valkey_url, vocabulary) as s:
        error = (await post(s, path, 400, **body))["error"]
        assert param in error["message"]


async def test_properties_are_the_model_s(valkey_url: str, vocabulary: bytes) -> None:
    cards = [card(), card(id="verifier-2", n_ctx=256), card(id="verifier-3", draining=True)]
    async with stack(valkey_url, vocabulary, cards=cards) as s:
        props = await get(s, f"/props?model={MODEL}")
        assert props == await get(s, "/props")
        await get(s, "/props?model=other", 404)
    assert props["default_generation_settings"]["n_ctx"] == 256
    assert props["total_slots"] == 8
    assert (props["bos_token"], props["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    assert "im_start" in props["chat_template"]
    assert props["modalities"] == {"vision": False, "audio": False}
    assert props["model_path"] == MODEL
    assert props["exactness"] == "strict"


async def test_slots_show_what_runs(valkey_url: str, vocabulary: bytes) -> None:
    runs = RequestStatus(request_id="req-1", offset=7, tokens_per_round=2.5, drafters=("d",))
    cards = [card(slots=2, requests=(runs,)), card(id="verifier-2", model="other", slots=1)]
    async with stack(valkey_url, vocabulary, cards=cards) as s:
        every = await get(s, "/slots")
        mine = await get(s, f"/slots?model={MODEL}")
        await get(s, "/slots?model=unknown", 404)
    assert len(every) == 3
    assert [slot["is_processing"] for slot in mine] == [True, False]
    assert (mine[0]["id_task"], mine[0]["n_decoded"], mine[0]["drafters"]) == ("req-1", 7, ["d"])
    assert "id_task" not in mine[1]


async def test_browsers_may_send_what_clients_send(valkey_url: str, vocabulary: bytes) -> None:
    sent = "authorization, content-type, openai-organization, x-stainless-lang, anthropic-beta, user-agent"
    asked = {
        "Origin": "http://example.org",
        "Access-Control-Request-Method": "DELETE",
        "Access-Control-Request-Headers": sent,
    }
    async with stack(valkey_url, vocabulary, api_key=["secret"]) as s:
        response = await s.session.options(f"{s.url}/api/delete", headers=asked)
    assert "DELETE" in response.headers["Access-Control-Allow-Methods"]
    assert set(sent.split(", ")) <= set(response.headers["Access-Control-Allow-Headers"].split(", "))
