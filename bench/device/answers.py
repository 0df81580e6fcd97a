"""Answers of a whole fleet, plainly and with drafts in turn: the target on the device, the draft model beside it."""

import asyncio
import statistics
import time
from typing import Any, Final

from bench.device.told import Told
from bench.tasks import Task
from bench.workload import requests
from services.launcher.clients.streaming import StreamedAnswer, stream
from services.launcher.fleet.child import service_command
from services.launcher.fleet.cores import halves
from services.launcher.fleet.stack import Stack

CTX: Final = 1024
PARALLEL: Final = 2
_PLAIN_S: Final = 5.0  # what a plain answer may take
_TOKENS: Final = range(16, 129)
_SHARE: Final = 0.7  # of the time, after which no further answer is begun


def run(told: Told) -> dict[str, Any]:
    """Answer as many prompts as there is time for, one at least."""
    return asyncio.run(_run(told))


def tokens(decode_ms: float) -> int:
    """Per answer, for a target whose decode takes so long."""
    return max(_TOKENS[0], min(_TOKENS[-1], int(1000 * _PLAIN_S / decode_ms)))


async def _run(told: Told) -> dict[str, Any]:
    begin = time.monotonic()
    engine, side = halves()
    decode_ms = list(told.figures["models"]["decode_ms"].values())[-1]
    verifier = (*service_command("verifier"), "--target-device", told.target)
    drafter = (*service_command("drafter"), "--draft-device", told.draft)
    found = []
    async with Stack(
        told.target_model,
        engine_cores=engine,
        side_cores=side,
        ctx=CTX,
        parallel=PARALLEL,
        exactness="auto",
        commands={"verifier": verifier},
        say=lambda phase: print(phase, flush=True),
    ) as stack:
        await stack.start_drafter(told.draft_model, command=drafter)
        work = requests(0, tokens(decode_ms))
        await stream(stack.http, work[0].body("auto") | {"max_tokens": 8})
        for request in work:
            plain = await stream(stack.http, request.body(False))
            drafted = await stream(stack.http, request.body("auto"))
            found.append(_compared(request, plain, drafted))
            print(found[-1], flush=True)
            if time.monotonic() - begin > _SHARE * told.seconds:
                break
    ratios = [one["ratio"] for one in found if one["ratio"]]
    return {"answers": found, "ratio": statistics.geometric_mean(ratios) if ratios else None}


def _compared(request: Task, plain: StreamedAnswer, drafted: StreamedAnswer) -> dict[str, Any]:
    told = drafted.statistics
    return {
        "prompt": request.name,
        "temperature": request.temperature,
        "tokens": len(plain.tokens),
        "plain": plain.tokens_per_second,
        "drafted": drafted.tokens_per_second,
        "ratio": drafted.tokens_per_second / plain.tokens_per_second if plain.tokens_per_second else None,
        "guesses": told.get("drafted") or 0,
        "accepted": told.get("accepted") or 0,
        "same": plain.tokens == drafted.tokens,
        "reason": told.get("reason") or "",
    }
