"""One streamed chat completion as a client sees it: every event with the time of its arrival."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp


class AnswerError(RuntimeError):
    """The server refused the request or ended its stream with an error; the message is the server's.

    `status` is that of the response, 0 for an error after the headers.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributedToken:
    """A token of the answer and who guessed it: a drafter's id, or "" for the target itself."""

    token: int
    text: str
    source: str


@dataclass(slots=True, kw_only=True)
class StreamedAnswer:
    """What arrived so far. Times are `time.perf_counter()` seconds; `arrivals` has one entry per chunk with tokens."""

    started: float
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    finish: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0  # of the prompt, taken from the prefix cache
    statistics: dict[str, Any] = field(default_factory=dict)  # the final chunk's `speculative`

    def took(self, event: dict[str, Any], now: float) -> None:
        """An event of the stream arrived at `now`: note its tokens, its usage and why it ended."""
        if usage := event.get("usage"):
            self.prompt_tokens = int(usage["prompt_tokens"])
            self.cached_tokens = int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
        for choice in event.get("choices", ()):
            if tokens := choice.get("token_ids"):
                self.arrivals.append((now, len(tokens)))
                self.tokens += tokens
            self.finish = choice.get("finish_reason") or self.finish

    @property
    def first_token_s(self) -> float:
        return self.arrivals[0][0] - self.started if self.arrivals else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Decode speed: the tokens after the first chunk by the time after it, so that prefill does not count."""
        later = sum(count for _, count in self.arrivals[1:])
        decode_s = self.arrivals[-1][0] - self.arrivals[0][0] if self.arrivals else 0.0
        return later / decode_s if decode_s > 0 else 0.0


async def stream(
    http: aiohttp.ClientSession,
    body: Mapping[str, Any],
    on_guesses: Callable[[list[AttributedToken]], None] | None = None,
) -> StreamedAnswer:
    """POST a chat completion and follow it to its end. Raises `AnswerError`.

    `on_guesses` gets each chunk's tokens as they come; it needs `speculative_trace` in the body.
    """
    body = {**body, "stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True}
    answer = StreamedAnswer(started=time.perf_counter())
    await follow(http, "/v1/chat/completions", body, lambda now, event: _take(answer, event, now, on_guesses))
    return answer


async def follow(
    http: aiohttp.ClientSession,
    url: str,
    body: Mapping[str, Any],
    take: Callable[[float, dict[str, Any]], None],
    *,
    headers: Mapping[str, str] | None = None,
    clock: Callable[[], float] = time.perf_counter,
    ends_with_mark: bool = True,
) -> None:
    """POST `body` and give every event of the answer to `take`, with the moment of its arrival by `clock`.

    Returns at the end mark of OpenAI's streams. Raises `AnswerError` if the server refuses, sends an error or, unless
    its streams have no such mark, stops before it; errors of the connection are aiohttp's.
    """
    async with http.post(url, json=body, headers=headers, allow_redirects=False) as response:
        if response.status != 200:
            raise AnswerError(f"HTTP {response.status}: {(await response.text())[:500]}", response.status)
        async for line in response.content:
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                return
            event = json.loads(data)
            if error := event.get("error"):
                raise AnswerError(str(error.get("message", error) if isinstance(error, dict) else error))
            take(clock(), event)
    if ends_with_mark:
        raise AnswerError("the stream ended without its last event")


def _take(
    answer: StreamedAnswer,
    event: dict[str, Any],
    now: float,
    on_guesses: Callable[[list[AttributedToken]], None] | None,
) -> None:
    if statistics := event.get("speculative"):
        answer.statistics = statistics
    answer.took(event, now)
    for choice in event.get("choices", ()):
        answer.text += choice.get("delta", {}).get("content") or ""
        if on_guesses and (trace := choice.get("trace")):
            on_guesses([AttributedToken(token=one["token"], text=one["text"], source=one["source"]) for one in trace])
