"""The target and the draft of a check, in the size that suits the device."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from bench.device import random_model, sizing
from bench.device.decoding import Decoding
from bench.device.random_model import Shape
from bench.device.sizing import FIRST_FACTOR, SMALL, TINY
from bench.device.told import Told
from services.launcher.models import gguf_copy
from services.launcher.models.gguf_copy import GgufCopy
from shared.machine.devices import CPU
from shared.machine.resources import available_memory

_QUANT: Final = "Q8_0"


def run(told: Told) -> dict[str, Any]:
    """Make both, and say what was measured to choose their size."""
    decode_ms = {}
    _write(told, TINY, 1)
    with Decoding(told.target_model, told.target) as tiny:
        tiny_ms = tiny.milliseconds(1)
    shape, factor = sizing.shape(tiny_ms), 1
    if shape is SMALL:
        _write(told, SMALL, FIRST_FACTOR)
        with Decoding(told.target_model, told.target) as first:
            decode_ms[FIRST_FACTOR] = first.milliseconds(1)
        size = told.target_model.stat().st_size
        added = (size - told.draft_model.stat().st_size) // (FIRST_FACTOR - 1)
        factor = sizing.factor(decode_ms[FIRST_FACTOR], size, _free(told), added)
        _widen(told, factor)
        with Decoding(told.target_model, told.target) as last:
            decode_ms[factor] = last.milliseconds(1)
    return {
        "shape": asdict(shape),
        "factor": factor,
        "quant": _QUANT,
        "target_bytes": told.target_model.stat().st_size,
        "draft_bytes": told.draft_model.stat().st_size,
        "tiny_decode_ms": tiny_ms,
        "decode_ms": decode_ms or {1: tiny_ms},
    }


def _write(told: Told, shape: Shape, factor: int) -> None:
    base = _base(told)
    random_model.write(base, told.vocabulary, shape)
    gguf_copy.write(base, [GgufCopy(path=told.draft_model, quant=_QUANT)])
    _widen(told, factor)


def _widen(told: Told, factor: int) -> None:
    gguf_copy.write(_base(told), [GgufCopy(path=told.target_model, quant=_QUANT, factor=factor)])


def _base(told: Told) -> Path:
    return told.folder / "base.gguf"


def _free(told: Told) -> int:
    """Bytes that are free on the device, and in the machine, through which all of it goes."""
    here = int(available_memory())
    if told.target == CPU:
        return here
    found = next(one for one in told.figures["devices"]["devices"] if one["name"] == told.target)
    return min(here, int(found["memory_free"]))
