"""Sends one request of the benchmark to any server, and records its answer with times."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import aiohttp

from services.launcher.bench.acceptance import read
from services.launcher.bench.plan import PlannedRequest
from services.launcher.bench.samples import TimedAnswer
from services.launcher.bench.servers import Server
from services.launcher.clients.streaming import AnswerError, follow

T = TypeVar("T")

# Not OpenAI's fields, but most servers know them. Some servers truncate the distribution by default, and would then
# sample from another one.
WHOLE_DISTRIBUTION: Final = {"top_k": 0, "min_p": 0.0}


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
    events: list[tuple[float, dict[str, Any]]] = []
    url, asked = str(server.address.url / "v1/chat/completions"), body(request, server, extras)
    headers = server.address.headers
    begin = clock()
    try:
        await follow(http, url, asked, lambda *event: events.append(event), headers=headers, clock=clock)
        end = clock()
        choices = [(now, choice) for now, event in events for choice in event.get("choices") or ()]
        arrivals = [now - begin for now, choice in choices if _text(choice.get("delta") or {})]
        usage = _last(event.get("usage") for _, event in events) or {}
        counted = int(usage.get("completion_tokens") or 0)
        answer = TimedAnswer(
            prompt_tokens=int(usage.get("prompt_tokens") or 0),
            tokens=counted or len(arrivals),
            counted="usage" if counted else "chunks",
            finish=_last(choice.get("finish_reason") for _, choice in choices) or "",
            arrivals_s=tuple(arrivals),
            total_s=end - begin,
            acceptance=_last(read(event) for _, event in events),
            fingerprint=_last(event.get("system_fingerprint") for _, event in events) or "",
        )
    except TimeoutError:
        raise AnswerError("no whole answer in time (--timeout)") from None
    except aiohttp.ClientError as error:
        raise AnswerError(f"connection lost ({str(error) or type(error).__name__})") from None
    except (ValueError, AttributeError, TypeError) as error:
        raise AnswerError(f"not a stream of OpenAI's dialect ({error})") from None
    if not answer.arrivals_s:
        raise AnswerError("an answer without text")
    return answer


def _last(values: Iterable[T | None]) -> T | None:
    """The last value that is not empty; None without any."""
    return next(filter(None, reversed(list(values))), None)
