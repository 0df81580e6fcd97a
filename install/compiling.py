"""Compiles llama-cpp-python with pip, shows how far it is, and says in one sentence why it failed."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, TextIO

_NEEDED_BYTES: Final = 1_000_000_000  # of a build's temporary files
# What the wheel need not have: everything once more for C++ programs, and each library under a third name.
LEFT_OUT: Final = "bin/**;include/**;lib/**;llama_cpp/lib/*.so.*.*.*"
_STEP: Final = re.compile(r"^\s*\[(\d+)/(\d+)\]")  # ninja's
_PERCENT: Final = re.compile(r"^\s*\[\s*(\d+)%\]")  # make's
_TELL_PERCENT: Final = 10  # between two lines where nothing can be overwritten


class Refusal(Exception):
    """One sentence that says why it cannot be done, and what helps."""


def compile_wheel(requirements: Path, cmake_arguments: str, folder: Path) -> Path:
    """Compile what the file `requirements` names with the hash of its source, into `folder`; the wheel. Raises
    `Refusal`, also for a source with another hash."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < _NEEDED_BYTES:
        raise Refusal(
            f"compiling needs {_NEEDED_BYTES / 1e9:.0f} GB in {tempfile.gettempdir()}, and {free / 1e9:.1f} are free;"
            " make room, or name another folder with TMPDIR"
        )
    log = Path(sys.prefix) / "llama-build.log"
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "wheel", "--verbose"]
    command += ["--no-deps", "--no-cache-dir", "--no-binary", "llama-cpp-python"]
    command += ["--wheel-dir", str(folder), "--require-hashes", "--requirement", str(requirements)]
    environment = os.environ | {"CMAKE_ARGS": cmake_arguments, "SKBUILD_WHEEL_EXCLUDE": LEFT_OUT}
    progress = BuildProgress(sys.stderr)
    with (
        log.open("w") as record,
        subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            record.write(line)
            progress(line)
    progress.end()
    if process.returncode:
        raise Refusal(reason(log.read_text(errors="replace"), log))
    return next(folder.glob("*.whl"))


class BuildProgress:
    """Tells how far a build is: in place on a terminal, elsewhere now and then in a line of its own."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._told = -1

    def __call__(self, line: str) -> None:
        percent = _percent(line)
        if percent is None or percent == self._told:
            return
        if self._out.isatty():
            self._out.write(f"\rcompiling llama.cpp: {percent} %")
        elif percent - self._told >= _TELL_PERCENT or self._told < 0:
            self._out.write(f"compiling llama.cpp: {percent} %\n")
        else:
            return
        self._told = percent
        self._out.flush()

    def end(self) -> None:
        """Leave the line."""
        if self._told >= 0 and self._out.isatty():
            self._out.write("\n")


def _percent(line: str) -> int | None:
    if found := _STEP.match(line):
        return 100 * int(found[1]) // int(found[2])
    if found := _PERCENT.match(line):
        return int(found[1])
    return None


_REASONS: Final = {
    "No space left on device": "the disk is full; make room, or name another folder with TMPDIR",
    "No CMAKE_C": "there is no C or C++ compiler; on Debian and Ubuntu `apt-get install build-essential` brings them",
    "Killed signal terminated": "memory ran out; `CMAKE_BUILD_PARALLEL_LEVEL=1 make install` needs less",
    "No matching distribution found": "pip does not find the source of llama-cpp-python; is the network up?",
}


def reason(text: str, log: Path) -> str:
    """Why a build failed, out of its output. Pure."""
    for sign, sentence in _REASONS.items():
        if sign in text:
            return f"llama.cpp was not compiled: {sentence} ({log})"
    errors = [line.strip() for line in text.splitlines() if re.search(r"\b(fatal )?error:", line, re.IGNORECASE)]
    return f"llama.cpp was not compiled: {errors[0] if errors else 'the log says why'} ({log})"
