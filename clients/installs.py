"""Clients in environments of their own below one folder: a virtual environment or an npm prefix each.

What is there already is taken as it is. A client that cannot be installed is skipped with the reason.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clients.running import run

_INSTALL_S: Final = 900.0


class NotInstalled(RuntimeError):
    """Why a client cannot be had, in one line."""


@dataclass(frozen=True, slots=True)
class Installed:
    """Where a client's programs are, and which version it is."""

    programs: Path
    version: str


@dataclass(frozen=True, slots=True)
class PyPI:
    """A package in a virtual environment of its own."""

    package: str

    async def install(self, folder: Path) -> Installed:
        """Raises `NotInstalled`."""
        programs = folder / self.package / "bin"
        python = str(programs / "python")
        if not (programs.parent / "done").exists():
            await _do([sys.executable, "-m", "venv", str(programs.parent)], folder)
            await _do([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", self.package], folder)
            (programs.parent / "done").touch()
        ask = f"from importlib.metadata import version; print(version({self.package!r}))"
        return Installed(programs, (await _do([python, "-c", ask], folder)).strip())


@dataclass(frozen=True, slots=True)
class Npm:
    """A package under an npm prefix of its own."""

    package: str
    version: str

    async def install(self, folder: Path) -> Installed:
        """Raises `NotInstalled`."""
        prefix = folder / self.package.replace("/", "-").removeprefix("@")
        if not (prefix / "done").exists():
            prefix.mkdir(parents=True, exist_ok=True)
            wanted = f"{self.package}@{self.version}"
            await _do(["npm", "install", "--prefix", str(prefix), "--no-audit", "--no-fund", wanted], folder)
            (prefix / "done").touch()
        manifest = prefix / "node_modules" / self.package / "package.json"
        return Installed(prefix / "node_modules" / ".bin", str(json.loads(manifest.read_text())["version"]))


async def _do(command: list[str], folder: Path) -> str:
    """What the command prints. Raises `NotInstalled` with the last line of what it complained of."""
    try:
        done = await run(command, environment=dict(os.environ), folder=folder, timeout_s=_INSTALL_S)
    except FileNotFoundError:
        raise NotInstalled(f"{command[0]} is not on this machine") from None
    if done.status != 0:
        lines = [line.strip() for line in done.errors.splitlines() if line.strip()] or [f"exit status {done.status}"]
        raise NotInstalled(f"{' '.join(command[:3])} … failed: {lines[-1][:200]}")
    return done.output
