"""The target and the draft of a check, in a size by what decodes cost there: it ends in time and tells something."""

from dataclasses import asdict
from typing import Any, Final

from bench.device import random_model
from bench.device.decoding import Decoding
from bench.device.random_model import Shape
from bench.device.told import Told
from services.launcher.models import gguf_copy
from services.launcher.models.gguf_copy import GgufCopy
from shared.machine.devices import CPU
from shared.machine.resources import available_memory

_QUANT: Final = "Q8_0"
TINY: Final = Shape(width=64, inner=256, layers=2, tokens=4096)
SMALL: Final = Shape(width=512, inner=2048, layers=8)
FIRST_FACTOR: Final = 8  # what the target is widened by when it is measured for the first time
_SLOW_MS: Final = 3.0  # of a tiny model's decode: there the small one would take a hundred times as long
_WANTED_MS: Final = 20.0  # of the target's decode: what a 30B model in 4 bits takes on a card of 900 GB/s
_MOST_BYTES: Final = 24 << 30  # it has to be loaded three times
_SHARE: Final = 0.6  # of the memory that is free


def shape_for(tiny_ms: float) -> Shape:
    """What the models are made from, after what one row of a tiny one took."""
    return TINY if tiny_ms > _SLOW_MS else SMALL


def factor_for(first_ms: float, first_bytes: int, free: int, added: int) -> int:
    """What to widen the target by, after what it took and was at `FIRST_FACTOR`, where one more adds `added` bytes.

    `free` are the bytes that are free on the device or in the machine, whichever is less.
    """
    wanted = first_bytes * _WANTED_MS / max(first_ms, 0.01)
    size = min(wanted, _MOST_BYTES, _SHARE * free)
    return max(1, FIRST_FACTOR + int((size - first_bytes) // added))


def run(told: Told) -> dict[str, Any]:
    """Make both, and say what was measured to choose their size."""
    decode_ms = {}
    _write(told, TINY, 1)
    with Decoding(told.target_model, told.target) as tiny:
        tiny_ms = tiny.milliseconds()
    shape, factor = shape_for(tiny_ms), 1
    if shape is SMALL:
        _write(told, SMALL, FIRST_FACTOR)
        with Decoding(told.target_model, told.target) as first:
            decode_ms[FIRST_FACTOR] = first.milliseconds()
        size = told.target_model.stat().st_size
        added = (size - told.draft_model.stat().st_size) // (FIRST_FACTOR - 1)
        factor = factor_for(decode_ms[FIRST_FACTOR], size, _free(told), added)
        _widen(told, factor)
        with Decoding(told.target_model, told.target) as last:
            decode_ms[factor] = last.milliseconds()
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
    base = told.folder / "base.gguf"
    random_model.write(base, told.vocabulary, shape)
    gguf_copy.write(base, [GgufCopy(path=told.draft_model, quant=_QUANT)])
    _widen(told, factor)


def _widen(told: Told, factor: int) -> None:
    gguf_copy.write(told.folder / "base.gguf", [GgufCopy(path=told.target_model, quant=_QUANT, factor=factor)])


def _free(told: Told) -> int:
    """Bytes that are free on the device, and in the machine, through which all of it goes."""
    here = int(available_memory())
    if told.target == CPU:
        return here
    found = next(one for one in told.figures["devices"]["devices"] if one["name"] == told.target)
    return min(here, int(found["memory_free"]))
