"""A whole chat answer, with the content that the stream would have had."""

from collections.abc import Sequence

from services.gateway.dialects.chat.parts import called, logprobs
from services.gateway.dialects.chat.request import ChatRequest
from services.gateway.dialects.openai_frames import head, traces
from services.gateway.formats.parts import CallArguments, CallEnd, CallStart, Part, Text, Thought
from services.gateway.generation.choice import CommittedToken, Delta, Event, Finished
from services.gateway.generation.usage import UsageTally
from services.gateway.http.dialect import Identity


class _Call:
    """A tool call as far as it came."""

    def __init__(self, start: CallStart) -> None:
        self.start = start
        self.arguments: list[str] = []
        self.complete = False


class _Choice:
    """One choice as far as it came."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.thought: list[str] = []
        self.calls: dict[int, _Call] = {}
        self.pieces: list[CommittedToken] = []
        self.finished: Finished | None = None

    def take(self, part: Part) -> None:
        match part:
            case Text(text):
                self.text.append(text)
            case Thought(text):
                self.thought.append(text)
            case CallStart(index):
                self.calls[index] = _Call(part)
            case CallArguments(index, fragment):
                self.calls[index].arguments.append(fragment)
            case CallEnd(index):
                self.calls[index].complete = True

    def message(self, reason: str, shows_reasoning: bool) -> dict[str, object]:
        """The message. It holds a call that was cut off only if the answer's limit cut it."""
        calls = [call for call in self.calls.values() if call.complete or reason == "length"]
        content = "".join(self.text)
        message: dict[str, object] = {
            "role": "assistant",
            "content": content or (None if calls else ""),
            "refusal": None,
        }
        if self.thought and shows_reasoning:
            message["reasoning_content"] = "".join(self.thought)
        if calls:
            message["tool_calls"] = [called(call.start.id, call.start.name, "".join(call.arguments)) for call in calls]
        return message


class ChatCollector:
    """Takes every event, then makes the object."""

    def __init__(self, request: ChatRequest, identity: Identity) -> None:
        self._request = request
        self._prepared = identity.prepared
        self._head = head(identity, "chatcmpl-", "chat.completion")
        self._tally = UsageTally(identity.prepared)
        self._choices = [_Choice() for _ in identity.prepared.jobs]

    def take(self, events: Sequence[Event]) -> None:
        for event in events:
            self._tally.saw(event)
            choice = self._choices[event.choice]
            if isinstance(event, Delta):
                choice.pieces += event.pieces
                for part in event.parts:
                    choice.take(part)
            else:
                choice.finished = event

    def body(self) -> dict[str, object]:
        """The object; every choice must have finished."""
        return {
            **self._head,
            "choices": [self._choice(index, choice) for index, choice in enumerate(self._choices)],
            "usage": self._tally.usage(),
            **self._tally.closing(),
        }

    def _choice(self, index: int, choice: _Choice) -> dict[str, object]:
        finished = choice.finished
        assert finished is not None
        body: dict[str, object] = {
            "index": index,
            "message": choice.message(finished.reason, self._request.shows_reasoning),
            "logprobs": logprobs(choice.pieces, self._prepared.lexicon) if self._request.logprobs else None,
            "finish_reason": finished.reason,
        }
        if len(self._choices) > 1:
            body["speculative"] = finished.statistics.report()
        return body | traces(self._request, choice.pieces)
