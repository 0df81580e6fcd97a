"""Where the second device comes from, and the variables under which processes see it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
REQUIRED: Final = "DRAFTMESH_TEST_VULKAN"  # set: what these tests need must be there
DEVICE: Final = "vulkan:0"
_CACHE: Final = ROOT / ".cache"
_VARIABLES: Final = {
    "XDG_DATA_HOME": str(_CACHE / "data"),  # `make vulkan` puts the backend there
    "GGML_VK_VISIBLE_DEVICES": "0",  # ggml leaves out a Vulkan device that is a CPU unless it is named
    # Mesa 22.3 goes on using buffers that ggml has freed where shaders with many inputs came before, and crashes.
    "GGML_VK_DISABLE_FUSION": "1",
    # Shaders are compiled for this CPU, which takes a minute in all: without LLVM's optimiser, and once.
    "GALLIVM_PERF": "nopt",
    "MESA_SHADER_CACHE_DIR": str(_CACHE / "mesa"),
}


def environment(folder: Path) -> dict[str, str]:
    """Variables of a process that sees the device and keeps its state, and what it measures, in `folder`."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("DRAFTMESH_")}
    return own | _VARIABLES | {"DRAFTMESH_CONFIG": "off", "DRAFTMESH_CACHE": str(folder), "PYTHONPATH": str(ROOT)}


def lacking(variables: dict[str, str]) -> str:
    """What is missing for the device to be there; empty if nothing is."""
    if not (Path(variables["XDG_DATA_HOME"]) / "draftmesh/backends/vulkan/libggml-vulkan.so").exists():
        return "no Vulkan backend here; `make vulkan` fetches it with npm"
    imports = "from shared.machine import devices; from shared.model import hardware"
    script = f"{imports}; print(*devices.named(hardware.look().devices))"
    found = subprocess.run([sys.executable, "-c", script], env=variables, capture_output=True, text=True, timeout=60)
    if DEVICE in found.stdout.split():
        return ""
    return "no Vulkan driver here; on Debian: apt-get install --no-install-recommends libvulkan1 mesa-vulkan-drivers"
