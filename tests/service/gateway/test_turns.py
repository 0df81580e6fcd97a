"""An agent's next turn begins with the very tokens that the target wrote, so that its prefix cache holds."""

from typing import Any

import pytest

from shared.model.llama.model import Model
from shared.wire.messages import Chunk, Finish, Job
from tests.service.scripted import MESSAGES, Step, stack
from tests.toy_format import ToyFormat

# As a model might write it, but no template would: spaces, and tokens that no tokeniser makes of this text.
THINKING, *CALL = "<think>hm, let me see</think>\n\n", "<call look>", '{"at"  :   "x"', "}</call>"


@pytest.fixture
def odd(model: Model) -> tuple[int, ...]:
    """The tokens of an answer that calls a tool, cut where no tokeniser cuts."""
    return tuple(token for part in (THINKING, *CALL) for token in model.vocabulary.tokenize(part))


@pytest.mark.parametrize("stream", [True, False])
async def test_a_call_s_tokens_are_in_the_next_prompt_as_they_were_written(
    valkey_url: str,
    vocabulary: bytes,
    model: Model,
    odd: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
    stream: bool,
) -> None:
    monkeypatch.setattr("services.gateway.models.served_model.detect", lambda *_: ToyFormat())

    def script(job: Job) -> list[Step]:
        return [Chunk(tokens=odd, finish=Finish.STOP)]

    async with stack(valkey_url, vocabulary, script) as s:
        call: dict[str, Any]
        if stream:
            deltas = [frame["choices"][0]["delta"] for frame in (await s.frames())[:-1] if frame["choices"]]
            calls = [part for delta in deltas for part in delta.get("tool_calls", [])]
            arguments = "".join(part["function"]["arguments"] for part in calls)
            call = {**calls[0], "function": {"name": calls[0]["function"]["name"], "arguments": arguments}}
        else:
            [call] = (await s.post())[1]["choices"][0]["message"]["tool_calls"]
        assert call["function"] == {"name": "look", "arguments": '{"at"  :   "x"}'}
        history = [
            *MESSAGES,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": "found"},
        ]
        await s.post(messages=history)
        changed = {**call, "function": {"name": "look", "arguments": '{"at": "y"}'}}
        await s.post(messages=[history[0], {**history[1], "tool_calls": [changed]}, history[2]])
    first, second, third = (job.prompt for job in s.verifier.jobs)
    kept = odd[len(model.vocabulary.tokenize(THINKING)) :]
    assert second[: len(first) + len(kept)] == first + kept
    assert third[: len(first)] == first
    assert third[: len(first) + len(kept)] != first + kept
