"""Structured logs on standard error: readable on a terminal, JSON elsewhere. No prompt, answer or key is ever logged.

Events consist of our own words and numbers. As a second safeguard, this removes fields by their names, passwords and
keys by their shapes, the messages of exceptions, which may quote data, and libraries' messages after the first line.
"""

import logging
import re
import sys
import threading
import traceback
from collections.abc import Iterator, MutableMapping
from typing import Any, Final, TextIO

import structlog
from redis.exceptions import RedisError

from shared.errors import StartError
from shared.lossy import LossyStream, lossy

logger = structlog.get_logger()

REDACTED: Final = "[redacted]"
_SECRET: Final = re.compile(
    r"(^|_)(authorization|api_?keys?|messages?|prompts?|texts?|contents?|tokens|password|secret|cookie|headers|body)$"
)
# Credentials in an address, our keys and others', and the text after the names of authorisation schemes.
_SHAPES: Final = re.compile(
    r"(?<=://)[^/\s@]*@|\b(?:dm|sk)-[\w-]{8,}|(?<=\bBearer )\S+|(?<=[?&]password=)[^&#\s]*", re.IGNORECASE
)
_MAX_TEXT: Final = 500
_MAX_FRAMES: Final = 12  # the innermost ones of an exception


def redact(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The event without secrets and data."""
    for name in event:
        event[name] = _clean(name, event[name])
    return event


def _clean(name: str, value: Any) -> Any:
    if isinstance(value, bool | int | float) or value is None:
        return value  # a count of tokens is not a secret
    if _SECRET.search(name.lower()):
        return REDACTED
    if isinstance(value, dict):
        return {key: _clean(str(key), inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_clean("", inner) for inner in value]
    text = _SHAPES.sub(REDACTED, value if isinstance(value, str) else str(value))
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"


def tell_exception(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replaces `exc_info` by `exception`: types and places, outermost first, and only our own messages."""
    error = event.pop("exc_info", None)
    if error is True:
        error = sys.exc_info()[1]
    elif isinstance(error, tuple):
        error = error[1]
    if isinstance(error, BaseException):
        event["exception"] = list(_told(error))
    return event


def _told(error: BaseException) -> Iterator[str]:
    yield f"{type(error).__name__}{_message(error)}"
    for frame in traceback.extract_tb(error.__traceback__)[-_MAX_FRAMES:]:
        yield f"  {frame.filename}:{frame.lineno} {frame.name}"
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _told(inner)
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        yield "caused by"
        yield from _told(cause)


def _message(error: BaseException) -> str:
    if isinstance(error, StartError | OSError):
        return f": {error}"
    if isinstance(error, RedisError):
        return f": {str(error).partition(', with args')[0][:120]}"  # a refused command is quoted with its arguments
    return ""


class LineLog:
    """Writes each line of the log to a stream; after lines were lost, it says how many as soon as one gets through."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._told = 0
        self._lock = threading.RLock()

    def msg(self, line: str) -> None:
        with self._lock:
            before = self._lost()
            self._stream.write(f"{line}\n")
            self._stream.flush()
            if self._told < self._lost() == before:
                told, self._told = self._told, before
                logger.warning("log_lines_dropped", lines=before - told)
                if self._lost() > before:  # this line was lost too, so the next one says both
                    self._told = told

    log = debug = info = warning = error = critical = msg

    def _lost(self) -> int:
        return lost_lines(self._stream)


def lost_lines(stream: TextIO | None = None) -> int:
    """How many lines could not be written to `stream`, by default to standard error since `configure`."""
    stream = stream or sys.stderr
    return stream.lost if isinstance(stream, LossyStream) else 0


class _Libraries(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        first = str(record.msg).partition("\n")[0]  # without arguments: a server's quote the bytes that it got
        level = logging.WARNING if record.levelno < logging.ERROR else logging.ERROR
        logger.log(level, "library_message", library=record.name, line=first, exc_info=record.exc_info)


def configure(service: str, level: str = "info", cached: bool = True) -> None:
    """Send this process's logs to standard error, every line carrying `service`.

    A line that cannot be written is dropped and counted; this holds for everything that goes to standard error from
    now on. Standard output stays free for results. `cached` loggers cannot be configured again.
    """
    sys.stderr = lossy(sys.stderr)
    log = LineLog(sys.stderr)
    terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S" if terminal else "iso", utc=not terminal),
            tell_exception,
            redact,
            structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer(ensure_ascii=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=lambda *_: log,
        cache_logger_on_first_use=cached,
    )
    structlog.contextvars.bind_contextvars(service=service)
    logging.basicConfig(handlers=[_Libraries()], level=logging.WARNING, force=True)
