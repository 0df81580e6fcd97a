"""`python -m bench.device.parts NAME FILE`: does one part of a check and writes what it found to FILE.

What it needs to know comes as JSON on standard input. It prints what it is doing; the last line says why it failed.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from bench.device import answers, models, self_test
from bench.device.answers import CTX, PARALLEL
from bench.device.schedule import PartFailed
from bench.device.told import Told
from services.launcher.clients.streaming import AnswerError
from services.launcher.fleet.cores import halves
from services.launcher.fleet.stack import StackError
from services.verifier.load import LoadedTarget, load
from shared.errors import StartError
from shared.law.payoff import Measurement, payoff
from shared.machine import devices
from shared.machine.devices import CPU
from shared.model import hardware
from shared.model.llama import plugins
from shared.model.llama.library import build_info
from shared.model.llama.placement import place_target
from shared.model.rows import LlamaError
from shared.settings.options import Exactness
from shared.settings.verifier_options import TargetOptions, VerifierOptions

_ACCEPTANCES: Final = (0.5, 0.7, 0.8, 0.9)


def listing(told: Told) -> dict[str, Any]:
    """What llama.cpp sees here, and which devices the other parts use. Raises `PartFailed` if there is only a CPU."""
    present = hardware.look().devices
    named = devices.named(present)
    wanted = told.wishes["target"]
    if wanted == devices.AUTO:
        wanted = next((name for name, device in named.items() if device.kind != CPU), "")
        if not wanted:
            added = ", ".join(plugins.installed()) or "none"
            raise PartFailed(f"there is no device besides the CPU (backends that were added: {added})")
    target = devices.choose(wanted, present, "--device")
    draft = devices.choose(told.wishes["draft"], present, "--draft-device")
    return {
        "llama_cpp": build_info(),
        "backends": sorted(plugins.installed()),
        "devices": [
            {
                "name": name,
                "description": device.description,
                "kind": device.kind,
                "memory_free": device.memory_free,
                "memory_total": device.memory_total,
            }
            for name, device in named.items()
        ],
        "target": devices.name_of(target, present),
        "draft": devices.name_of(draft, present),
    }


def calibration(told: Told) -> dict[str, Any]:
    """What rows cost on the device, with the unified cache."""
    loaded = _loaded(told, Exactness.LAW)
    row_ms = dict(loaded.costs.table)
    best = {acceptance: payoff(Measurement(row_ms=loaded.costs.table, alpha=acceptance)) for acceptance in _ACCEPTANCES}
    return {
        "row_ms": row_ms,
        "steps": {rows: ms / row_ms[1] for rows, ms in row_ms.items()},
        "payoff": {acceptance: {"drafts": found.width, "speedup": found.speedup} for acceptance, found in best.items()},
        "noise": loaded.noise,
    }


def exactness(told: Told) -> dict[str, Any]:
    """What the verifier would promise here."""
    loaded = _loaded(told, Exactness.AUTO)
    return {"level": loaded.level, "note": loaded.note, "noise": loaded.noise, "min_rows": loaded.min_rows}


def _loaded(told: Told, level: Exactness) -> LoadedTarget:
    """The target as the fleet's verifier will load it, so that this finds what was measured here."""
    target = TargetOptions(ctx=CTX, parallel=PARALLEL, threads=len(halves()[0]), exactness=level)
    return load(VerifierOptions(target_model=str(told.target_model), target=target), place_target(told.target))


PARTS: Final[Mapping[str, Callable[[Told], dict[str, Any]]]] = {
    "devices": listing,
    "self_test": self_test.run,
    "models": models.run,
    "calibration": calibration,
    "exactness": exactness,
    "answers": answers.run,
}


def main() -> int:
    """Do the part that the command line names; the exit status."""
    name, answer = sys.argv[1:]
    try:
        found = PARTS[name](Told(**json.load(sys.stdin)))
    except (PartFailed, StartError, LlamaError, StackError, AnswerError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    Path(answer).write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
