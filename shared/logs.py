"""Structured logs on standard error: readable on a terminal, JSON elsewhere. Prompts and answers are never logged."""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Final

import structlog

_SECRET: Final = frozenset({"authorization", "api_key", "messages", "prompt", "text", "content", "tokens", "password"})


def _redact(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name in _SECRET & event.keys():
        if not isinstance(event[name], int):  # a count of tokens is no secret
            event[name] = "[redacted]"
    return event


def configure(service: str, level: str = "info") -> None:
    """Send this process's logs to standard error, every line carrying `service`."""
    terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S" if terminal else "iso", utc=not terminal),
            _redact,
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)
