"""Makes a kit's contents usable in a folder of its own; nothing is installed on the machine.

Needs Python's standard library and its pip only.
"""

import ctypes.util
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.device.child import ROOT
from bench.device.manifest import Kit, read
from bench.device.schedule import PartFailed

WHEELS, BACKENDS, LIBRARIES, VOCABULARY = "wheels", "backends", "lib", "vocabulary.gguf"
# Where containers get NVIDIA's driver from their host, out of the Vulkan loader's sight.
_DRIVER_FILES: Final = "/usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json"


def unpack(folder: Path, home: Path, seconds: float) -> dict[str, Any]:
    """Unpack the kit in `folder` below `home`; what it held. Raises `PartFailed`."""
    kit = read(folder)
    _check_fits(kit)
    _install([folder / path for path in kit.under(WHEELS)], home / "site", seconds)
    for path in kit.under(BACKENDS):
        with tarfile.open(folder / path) as archive:
            archive.extractall(home / "data/draftmesh/backends", filter="data")
    for path in kit.under(LIBRARIES):
        (home / LIBRARIES).mkdir(exist_ok=True)
        shutil.copy(folder / path, home / LIBRARIES)
    return {"files": len(kit.files), "left_out": list(kit.left_out), "python": kit.python}


def environment(home: Path, own: Mapping[str, str]) -> dict[str, str]:
    """The environment in which `home`'s contents are found; `own` is ours."""
    made = {name: value for name, value in own.items() if not name.startswith("DRAFTMESH_")}
    made["DRAFTMESH_CACHE"] = str(home / "cache")
    made["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(home / "site")))
    if (home / "data").exists():
        made["XDG_DATA_HOME"] = str(home / "data")
    if (home / LIBRARIES).exists() and not ctypes.util.find_library("vulkan"):
        made["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, (str(home / LIBRARIES), own.get("LD_LIBRARY_PATH"))))
    if "VK_DRIVER_FILES" not in own and Path(_DRIVER_FILES).exists():
        made["VK_DRIVER_FILES"] = _DRIVER_FILES
    return made


def _check_fits(kit: Kit) -> None:
    here = ".".join(platform.python_version_tuple()[:2])
    if (kit.python, kit.machine) != (here, platform.machine()):
        raise PartFailed(
            f"the kit is for Python {kit.python} on {kit.machine}, and this is {here} on {platform.machine()};"
            f' `make device-kit ARGS="--python {here}"` makes one for it'
        )


def _install(wheels: list[Path], site: Path, seconds: float) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    command += ["--disable-pip-version-check", "--no-cache-dir", "--target", str(site), *map(str, wheels)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise PartFailed(f"pip did not unpack the wheels within {seconds:.0f} s") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise PartFailed(f"pip cannot unpack the wheels: {lines[-1]}", lines[-5:])
