"""Sends one request of the benchmark to any server, and records its answer with times."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import aiohttp

from services.launcher.bench.acceptance import DraftCounts, read
from services.launcher.bench.plan import PlannedRequest
from services.launcher.bench.samples import TimedAnswer
from services.launcher.bench.servers import Server
from services.launcher.clients.streaming import AnswerError, follow

# Not OpenAI's fields, but most servers know them. Some servers truncate the distribution by default, and would then
# sample from another one.
WHOLE_DISTRIBUTION: Final = {"top_k": 0, "min_p": 0.0}


class _Collector:
    """Takes a stream's events."""

    def __init__(self) -> None:
        self.arrivals: list[float] = []
        self.usage: dict[str, Any] = {}
        self.finish = ""
        self.fingerprint = ""
        self.acceptance: DraftCounts | None = None

    def take(self, now: float, event: dict[str, Any]) -> None:
        self.usage = event.get("usage") or self.usage
        self.acceptance = read(event) or self.acceptance
        self.fingerprint = event.get("system_fingerprint") or self.fingerprint
        for choice in event.get("choices") or ():
            if _text(choice.get("delta") or {}):
                self.arrivals.append(now)
            self.finish = choice.get("finish_reason") or self.finish


def _text(delta: Mapping[str, Any]) -> bool:
    """Whether the event has text; servers put thinking into fields of its own."""
    return any(delta.get(name) for name in ("content", "reasoning_content", "reasoning"))


def body(request: PlannedRequest, server: Server, extras: Mapping[str, Any]) -> dict[str, Any]:
    """The request in OpenAI's dialect, with the fields `extras` added."""
    return {
        "model": server.model,
        # Otherwise its prefix cache would hold the request that it just answered with drafts.
        "messages": list(request.twin if server.plain else request.messages),
        "temperature": request.temperature,
        "top_p": 1.0,
        "seed": request.seed,
        "max_tokens": request.tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        **extras,
    }


async def ask(
    http: aiohttp.ClientSession,
    server: Server,
    request: PlannedRequest,
    extras: Mapping[str, Any],
    clock: Callable[[], float] = time.perf_counter,
) -> TimedAnswer:
    """Send one request and follow its answer. Raises `AnswerError` for any failure."""
    collected = _Collector()
    begin = clock()
    try:
        await follow(
            http,
            str(server.chat_url),
            body(request, server, extras),
            collected.take,
            headers=server.address.headers,
            clock=clock,
        )
    except TimeoutError:
        raise AnswerError("no whole answer in time (--timeout)") from None
    except aiohttp.ClientError as error:
        raise AnswerError(f"connection lost ({str(error) or type(error).__name__})") from None
    except (ValueError, AttributeError, TypeError) as error:
        raise AnswerError(f"not a stream of OpenAI's dialect ({error})") from None
    if not collected.arrivals:
        raise AnswerError("an answer without text")
    end = clock()
    counted = int(collected.usage.get("completion_tokens") or 0)
    return TimedAnswer(
        prompt_tokens=int(collected.usage.get("prompt_tokens") or 0),
        tokens=counted or len(collected.arrivals),
        counted="usage" if counted else "chunks",
        finish=collected.finish,
        arrivals_s=tuple(now - begin for now in collected.arrivals),
        total_s=end - begin,
        acceptance=collected.acceptance,
        fingerprint=collected.fingerprint,
    )
