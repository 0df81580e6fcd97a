"""Decodes of tiny models on the device, compared with the CPU's: a kernel that crashes or errs shows here."""

from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.device import random_model
from bench.device.decoding import Decoding
from bench.device.models import TINY
from bench.device.schedule import PartFailed
from bench.device.told import Told
from services.launcher.models import gguf_copy
from services.launcher.models.gguf_copy import FORMATS, GgufCopy
from shared.machine.devices import CPU

ROWS: Final = (1, 2, 16, 64)  # ggml has kernels of their own for few and for many rows
_EQUAL: Final = 0.9  # of the rows must have the CPU's likeliest token: other orders of adding decide close calls


def run(told: Told) -> dict[str, Any]:
    """Compare every format of weights. Raises `PartFailed` for the first that is computed wrongly."""
    base = told.folder / "tiny.gguf"
    random_model.write(base, told.vocabulary, TINY)
    paths = {quant: told.folder / f"tiny-{quant}.gguf" for quant in FORMATS}
    gguf_copy.write(base, [GgufCopy(path=path, quant=quant) for quant, path in paths.items()])
    return {quant: _compared(quant, path, told.target) for quant, path in paths.items()}


def _compared(quant: str, path: Path, device: str) -> dict[str, Any]:
    print(f"{quant}: loading", flush=True)
    largest, equal, rows = 0.0, 0, 0
    with Decoding(path, CPU) as reference, Decoding(path, device) as examined:
        for count in ROWS:
            print(f"{quant}: decoding {count} rows", flush=True)  # the last line of a log says where a crash was
            wanted, found = (decoding.logits(range(500, 500 + count)) for decoding in (reference, examined))
            if not np.isfinite(found).all():
                raise PartFailed(f"{device} computes numbers that are none with weights of {quant} and {count} rows")
            largest = max(largest, float(np.abs(found - wanted).max()))
            equal += int((found.argmax(axis=1) == wanted.argmax(axis=1)).sum())
            rows += count
    if equal < _EQUAL * rows:
        raise PartFailed(
            f"{device} finds another likeliest token than the CPU in {rows - equal} of {rows} rows with weights of"
            f" {quant}, where logits differ by up to {largest:.2g}"
        )
    return {"rows": list(ROWS), "largest_difference": largest, "same_likeliest": equal, "of": rows}
