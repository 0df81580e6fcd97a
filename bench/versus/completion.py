"""A peer's answer as a client sees it: llama-server's `/completion` for token ids, its chat route for messages."""

import time
from typing import Any

import aiohttp

from bench.tasks import Task
from services.launcher.clients.streaming import AnswerError, StreamedAnswer, follow


async def complete(http: aiohttp.ClientSession, task: Task) -> StreamedAnswer:
    """Stream the completion of a task's token ids, without the prompt cache. Raises `AnswerError`."""
    return await _stream(http, "/completion", {**_law(task), "prompt": list(task.prompt), "return_tokens": True})


async def chat(http: aiohttp.ClientSession, task: Task) -> StreamedAnswer:
    """Stream a chat answer with the prompt cache, as in a conversation. Raises `AnswerError`.

    The chat route gives no token ids, so an arrival counts pieces of text.
    """
    body = {**_law(task), "messages": list(task.messages), "cache_prompt": True}
    return await _stream(http, "/v1/chat/completions", body)


def _law(task: Task) -> dict[str, Any]:
    """The request's law with everything off that the peer would do by default and draftmesh does not."""
    neutral = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}
    return {
        "temperature": task.temperature,
        "seed": task.seed,
        "n_predict": task.tokens,
        "max_tokens": task.tokens,
        "stream": True,
        "cache_prompt": False,
        **neutral,
    }


async def _stream(http: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> StreamedAnswer:
    answer = StreamedAnswer(started=time.perf_counter())
    try:
        await follow(http, path, body, lambda now, event: _take(answer, event, now), ends_with_mark=False)
    except aiohttp.ClientError as error:
        raise AnswerError(f"{path}: {type(error).__name__}: {error}") from error
    if not answer.finish:
        raise AnswerError(f"{path}: the stream ended without its last event")
    return answer


def _take(answer: StreamedAnswer, event: dict[str, Any], now: float) -> None:
    if tokens := event.get("tokens"):
        answer.arrivals.append((now, len(tokens)))
        answer.tokens += tokens
    answer.text += event.get("content") or ""
    if event.get("stop") is True:
        answer.finish = str(event.get("stop_type") or "stop")
    if timings := event.get("timings"):
        answer.statistics = timings
        answer.cached_tokens = int(timings.get("cache_n", 0))
        answer.prompt_tokens = int(timings.get("prompt_n", 0)) + answer.cached_tokens
    for choice in event.get("choices", ()):
        if text := choice.get("delta", {}).get("content"):
            answer.arrivals.append((now, 1))
            answer.text += text
        answer.finish = choice.get("finish_reason") or answer.finish
