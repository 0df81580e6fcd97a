"""Tells people what a starting process is doing, from its own log. Pure."""

import json
from collections.abc import Iterable
from typing import Any, Final

PHASE_LINES: Final = 5  # bytes of the end of a log that are read


def phase(lines: Iterable[str]) -> str:
    """The phase in the last of these log lines that has one; empty if none has."""
    for line in reversed(list(lines)):
        try:
            fields = json.loads(line)
        except ValueError:
            continue
        told = _words(fields) if isinstance(fields, dict) else ""
        if told:
            return told
    return ""


def _words(fields: dict[str, Any]) -> str:
    match fields:
        case {"event": "model_search" | "self_test", "progress": str(progress)}:
            return progress
        case {"event": "self_test_failed", "note": str(note)}:
            return note
        case {"event": "model_loading", "percent": int(percent)}:
            return f"loading the model, {percent} %"
        case {"event": "model_placed", "placed": str(placed)}:
            return placed
        case {"event": "calibration_noisy"}:
            return "this machine is busy: what rows cost is measured again once it is not"
        case {"event": "calibration_progress", "of": str(what), "percent": int(percent)}:
            return f"measuring {what}, once for this model and device, {percent} %"
    return ""
