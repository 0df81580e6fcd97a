"""Runs llama.cpp on tiny models in a process that may crash; `self_test` starts it and reports the outcome.

It prints each step before it takes it, so that the last line of a process that died says where.
"""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

import numpy as np

from shared.errors import StartError
from shared.law.sampling import Logits
from shared.machine.devices import CPU
from shared.model.llama import library, tiny_model, weights
from shared.model.llama.backend_device import BackendDevice, open_device
from shared.model.llama.context import Context
from shared.model.llama.model import Model
from shared.model.llama.self_test import FAILED
from shared.model.rows import LlamaError, Rows

ROWS: Final = (1, 2, 16, 64)  # rows of a decode: ggml has different kernels for one row, a few rows, and many
DEVICE: Final = "device"  # stands for an option, because no option named the device
_SEQUENCES: Final = 2
# Root mean square of the difference, of the logits' own. Kernels that round differently differ by 0.03; a wrong one
# gives other numbers altogether.
_TOLERANCE: Final = 0.25


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """A context as a verifier makes it."""

    name: str
    unified: bool
    key: str
    value: str
    flash_attn: bool | None


_STRICT: Final = ContextSettings("strict", False, "bf16", "f16", True)
_STRICT_GPU: Final = ContextSettings("strict", False, "bf16", "bf16", True)
_LAW: Final = ContextSettings("law", True, "f16", "f16", None)


def main(device_name: str, extra_buffers: bool, kinds: list[int]) -> None:
    """Try weights of `kinds` on the device of our name `device_name`, the CPU if it is empty; exits with `FAILED`."""
    _say("its start")
    library.begin()
    device = _device(device_name)
    with tempfile.TemporaryDirectory(prefix="draftmesh-self-test-") as folder:
        for kind in kinds:
            path = Path(folder) / f"{kind}.gguf"
            if tiny_model.write(path, kind):
                _try(path, weights.name(kind), device, extra_buffers)
                path.unlink()


def _device(name: str) -> BackendDevice | None:
    if not name:
        return None
    try:
        return open_device(name, DEVICE)
    except StartError as error:
        return _fail(str(error))


def _try(path: Path, kind: str, device: BackendDevice | None, extra_buffers: bool) -> None:
    _say(f"loading {kind} weights")
    try:
        model = Model(path, devices=[device] if device else [], extra_buffers=extra_buffers)
    except LlamaError:
        return  # no kernels for this type here; loading the real model reports it
    strict = _STRICT if device is None or device.kind == CPU else _STRICT_GPU
    for settings in (strict, _LAW):
        _decode(model, kind, settings)
    model.close()


def _decode(model: Model, kind: str, settings: ContextSettings) -> None:
    """Compute the same rows in narrow decodes first and in wide ones first: both must give the same logits."""
    try:
        context = Context(
            model,
            n_ctx=sum(ROWS),
            sequences=_SEQUENCES,
            unified=settings.unified,
            threads=1,  # more threads would wait for each other on a busy machine
            max_rows=max(ROWS),
            cache_type_k=settings.key,
            cache_type_v=settings.value,
            flash_attn=settings.flash_attn,
        )
    except LlamaError:
        return  # this device has no such cache; a verifier that needs it reports it
    what = f"{kind} weights, {settings.name} settings"
    narrow_first = _logits(context, ROWS, what)
    wide_first = _logits(context, ROWS[::-1], what)
    if not np.isfinite(narrow_first).all() or _difference(narrow_first, wide_first) > _TOLERANCE:
        _fail(f"wrong numbers with {what}")
    context.close()


def _logits(context: Context, widths: Sequence[int], what: str) -> Logits:
    context.truncate(0, 0)
    found = []
    start = 0
    for width in widths:
        _say(f"{width} {'row' if width == 1 else 'rows'} of {what}")
        rows = Rows()
        for position in range(start, start + width):
            rows.add(position, position, (0,), True)
        try:
            context.decode(rows)
        except LlamaError as error:
            _fail(str(error))
        found += [context.logits(row).copy() for row in range(width)]
        start += width
    return np.stack(found)


def _difference(found: Logits, reference: Logits) -> float:
    return float(np.sqrt(np.square(found - reference).mean(axis=1) / np.square(reference).mean(axis=1)).max())


def _say(step: str) -> None:
    print(step, flush=True)


def _fail(line: str) -> NoReturn:
    _say(line)
    sys.exit(FAILED)


if __name__ == "__main__":
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash is an expected answer, so it writes no core file
    main(sys.argv[1], sys.argv[2] == "1", [int(kind) for kind in sys.argv[3:]])
