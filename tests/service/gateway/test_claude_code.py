"""Requests as Claude Code sends them, through several turns."""

import itertools
import json
from typing import Any

import pytest

from services.gateway.prompts.template import ChatTemplate
from shared.model.llama.model import Model
from tests import claude_code, templates
from tests.service.scripted import Stack, card, speaking, stack
from tests.toy_format import ToyFormat

ROOMY = [card(n_ctx=1 << 17)]
HEADERS = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,mid-conversation-system-2026-04-07",
    "X-Claude-Code-Session-Id": "s",
    "Authorization": "Bearer x",
}


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.models.served_model.detect", lambda *_: ToyFormat())
    use_template(monkeypatch, templates.HERMES)


def use_template(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.setattr(
        "services.gateway.models.served_model.ChatTemplate", lambda _, **tokens: ChatTemplate(source, **tokens)
    )


async def ask(s: Stack, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The blocks of the answer, as a client puts them together to send them back."""
    url = f"{s.url}/v1/messages?beta=true"
    async with s.session.post(url, json=body, headers=HEADERS) as response:
        assert response.status == 200, await response.text()
        assert "x-draftmesh-warning" not in response.headers
        lines = (await response.text()).split("\n")
    blocks: list[dict[str, Any]] = []
    for event in (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")):
        if event["type"] == "content_block_start":
            blocks.append(event["content_block"] | {"json": ""})
        elif event["type"] == "content_block_delta":
            for field, text in event["delta"].items():
                if field != "type":
                    blocks[-1]["json" if field == "partial_json" else field] += text
    for block in blocks:
        arguments = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(arguments)
    return blocks


@pytest.mark.parametrize("template", ["CHATML", "HERMES", "TEXT_ARGUMENTS", "STRICT", "NO_SYSTEM", "TYPED", "CHANNELS"])
async def test_each_request_of_a_session_begins_with_the_one_before(
    valkey_url: str, vocabulary: bytes, model: Model, monkeypatch: pytest.MonkeyPatch, template: str
) -> None:
    use_template(monkeypatch, getattr(templates, template))
    call = '<think>Read it.</think>I look.\n<call Tool3>{"path":  "/a"}</call>'
    scripts = iter([speaking(model, call), speaking(model, "It is empty."), speaking(model, "Bye.")])
    async with stack(valkey_url, vocabulary, lambda job: next(scripts)(job), cards=ROOMY) as s:
        first = await ask(s, claude_code.request())
        assert [block["type"] for block in first] == ["thinking", "text", "tool_use"]
        results = [
            {"type": "tool_result", "tool_use_id": first[-1]["id"], "content": ""},
            {"type": "text", "text": "<system-reminder>\nToken usage: 1/9; 8 remaining\n</system-reminder>"},
        ]
        turns = [{"role": "assistant", "content": first}, {"role": "user", "content": results}]
        second = await ask(s, claude_code.request(*turns, number=2))
        turns += [{"role": "assistant", "content": second}, {"role": "user", "content": "Thanks."}]
        await ask(s, claude_code.request(*turns, number=3))
        prompts = [job.prompt for job in s.verifier.jobs]
    for before, after in itertools.pairwise(prompts):
        pairs = enumerate(zip(before, after, strict=False))
        shared = next((index for index, (one, other) in pairs if one != other), len(before))
        # The prompt's last tokens only say that an answer begins, which reads otherwise once it holds one.
        assert shared >= len(before) - 3
    text = b"".join(map(model.vocabulary.piece, prompts[-1])).decode()
    assert "x-anthropic-billing-header" not in text
    assert "tokens left" not in text
    assert "remaining" not in text
    assert text.index("Kinds of agents") > text.index("The date is")


async def test_counts_include_system_and_tools(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    body = claude_code.request()
    assert len(json.dumps(body["tools"])) > 60_000
    parts: list[dict[str, Any]] = [{}, {"tools": []}, {"tools": [], "system": []}]
    counts = []
    async with stack(valkey_url, vocabulary, speaking(model, "Hi"), cards=ROOMY) as s:
        for part in parts:
            url = f"{s.url}/v1/messages/count_tokens?beta=true"
            async with s.session.post(url, json={**body, **part}, headers=HEADERS) as response:
                counts.append((await response.json())["input_tokens"])
        await ask(s, body)
        assert counts[0] == len(s.verifier.jobs[0].prompt)
    with_tools, without_tools, bare = counts
    assert without_tools - bare > 500
    assert bare > 300
    assert with_tools - without_tools > 10_000


async def test_the_same_request_works_without_a_stream(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    body = {**claude_code.request(), "stream": False}
    async with (
        stack(valkey_url, vocabulary, speaking(model, "Hi"), cards=ROOMY) as s,
        s.session.post(f"{s.url}/v1/messages?beta=true", json=body, headers=HEADERS) as response,
    ):
        assert (await response.json())["content"] == [{"type": "text", "text": "Hi"}]
        # What its models can write is more than the room there is.
        assert s.verifier.jobs[0].max_tokens == 32000
