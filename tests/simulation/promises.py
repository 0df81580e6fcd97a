"""What must be true after a whole-system run, and of the processes in it."""

import asyncio
from typing import Any

from shared.wire import keys
from shared.wire.broker import DISCONNECTED
from shared.wire.messages import Finish, Job
from shared.wire.reading import parse_entry
from tests.simulation.asks import MODEL, TIMEOUT_MS, Ask
from tests.simulation.partners import reference


class Broken(AssertionError):
    """A promise was not kept."""


def _must(holds: object, otherwise: str) -> None:
    if not holds:
        raise Broken(otherwise)


def check_ask(ask: Ask, lost: bool) -> None:
    """A client got what the target says, all of it if it was told so, and a reason if not.

    `lost`: Redis lost the hash or the log of one of its jobs.
    """
    for job, tokens, end in zip(ask.jobs, ask.tokens, ask.ends, strict=True):
        whole = reference(job.prompt, job.sampling, job.max_tokens)
        stopped = next((index for index, token in enumerate(whole) if token in ask.stop), None)
        expected = list(whole if stopped is None else whole[: stopped + 1])
        _must(tokens == expected[: len(tokens)], f"{job.request_id}: {tokens} instead of {expected}")
        if ask.fate == "answered":
            _must(tokens == expected, f"{job.request_id}: {tokens} is not all of {expected}")
            stop = stopped is not None or len(whole) < job.max_tokens
            _must(end in (("stop",) if stop else ("length", "stop")), f"{job.request_id}: ended {end!r}")
    allowed = ["answered", "cut", "left", "service_unavailable", "generation_failed"]
    if ask.jobs[0].timeout_ms < TIMEOUT_MS:
        allowed.append("deadline_exceeded")
    if lost:
        allowed.append("request_lost")
    _must(ask.fate in allowed, f"{ask.jobs[0].request_id}: {ask.fate}")


def check_log(redis: Any, job: Job) -> str:
    """A log is a prefix of the answer, without gaps, and ends once; returns how, "" for a job that never came."""
    state, submitted = redis.hmget(keys.job(job.request_id), "state", "deadline")
    if submitted is None:
        return ""  # at most cancelled before it came
    log = [parse_entry(*entry) for entry in redis.xrange(keys.log(job.request_id))]
    tokens = [token for _, chunk in log for token in chunk.tokens]
    whole = reference(job.prompt, job.sampling, job.max_tokens)
    _must(tuple(tokens) == whole[: len(tokens)], f"{job.request_id}: the log is {tokens}")
    reached = 0
    for base, chunk in log:
        _must(base == reached, f"{job.request_id}: a chunk at {base} instead of {reached}")
        reached += len(chunk.tokens)
    ends = [chunk.finish for _, chunk in log if chunk.finish is not Finish.NONE]
    _must(len(ends) == 1 and log[-1][1].finish is ends[0], f"{job.request_id}: ends {ends}")
    _must(state in (b"finished", b"cancelled"), f"{job.request_id}: {state}")
    if ends[0] in (Finish.STOP, Finish.LENGTH):
        _must(tuple(tokens) == whole, f"{job.request_id}: the log lacks a part of {whole}")
    return ends[0]


def check_server(redis: Any) -> None:
    """Nothing is left in anybody's hands, and nothing stays for ever."""
    groups = redis.xinfo_groups(keys.jobs(MODEL)) if redis.exists(keys.jobs(MODEL)) else []
    pending = sum(group["pending"] for group in groups)
    _must(not pending, f"{pending} jobs are pending")
    for key in redis.keys("*"):
        _must(redis.pttl(key) > 0, f"{key.decode()} never expires")


def check_loop(failures: "list[BaseException | str]") -> None:
    """No callback failed, and no task unseen."""
    _must(not failures, f"failures: {failures[:1]}")


def check_end(task: "asyncio.Task[None]", name: str) -> None:
    """A process may end because it was asked to, or because Redis was away while it started; it may not fail."""
    error = task.exception()
    if error is None or not _unexpected(error):
        return
    raise Broken(f"{name} failed") from error


def _unexpected(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(map(_unexpected, error.exceptions))
    return not isinstance(error, DISCONNECTED)
