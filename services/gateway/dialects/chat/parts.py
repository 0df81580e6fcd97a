"""An answer's parts in the words of OpenAI's chat: deltas of a message, and log-probabilities. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

from services.gateway.dialects.openai_frames import LOWEST_LOGPROB
from services.gateway.dialects.tool_call_ids import OPENAI
from services.gateway.formats.parts import CallArguments, CallStart, Part, Text, Thought
from services.gateway.generation.choice import CommittedToken
from services.gateway.models.served_model import Lexicon


def deltas(parts: Iterable[Part], shows_reasoning: bool) -> list[dict[str, object]]:
    """One delta for each part that clients receive.

    The first delta of a call has its name and empty arguments; later ones have only pieces of the arguments.
    """
    said: list[dict[str, object]] = []
    for part in parts:
        match part:
            case Text(text):
                said.append({"content": text})
            case Thought(text):
                if shows_reasoning:
                    said.append({"reasoning_content": text})
            case CallStart(index, call_id, name):
                said.append({"tool_calls": [{"index": index, **called(call_id, name, "")}]})
            case CallArguments(index, fragment):
                said.append({"tool_calls": [{"index": index, "function": {"arguments": fragment}}]})
    return said


def called(call_id: str, name: str, arguments: str) -> dict[str, object]:
    """A tool call as a message holds it."""
    return {"id": f"{OPENAI}{call_id}", "type": "function", "function": {"name": name, "arguments": arguments}}


def logprobs(pieces: Sequence[CommittedToken], lexicon: Lexicon) -> dict[str, Any]:
    """One entry per token that the verifier gave a log-probability for, thinking and calls included."""
    content = [
        {
            **_entry(piece.token, piece.logprob.logprob, lexicon),
            "top_logprobs": [_entry(token, logprob, lexicon) for token, logprob in piece.logprob.top],
        }
        for piece in pieces
        if piece.logprob is not None
    ]
    return {"content": content, "refusal": None}


def _entry(token: int, logprob: float, lexicon: Lexicon) -> dict[str, Any]:
    label = lexicon.label(token)
    return {
        "token": label.decode(errors="replace"),
        "bytes": list(label),
        "logprob": max(logprob, LOWEST_LOGPROB),
    }
