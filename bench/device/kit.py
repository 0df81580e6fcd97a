"""`make device-kit`: gathers what `make device-check` needs on a machine without a network.

Wheels of everything that draftmesh needs, for another Python if wished; a llama.cpp; the backends that `draftmesh
backend add` has put here; the Vulkan loader; and a vocabulary, from which the check makes its models. They are
described in `kit.json`, with a digest of each.
"""

import ctypes.util
import importlib.metadata
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from bench.device import manifest, random_model
from bench.device.check import FOLDER
from bench.device.unpacking import BACKENDS, LIBRARIES, VOCABULARY, WHEELS
from install import llama
from install.compiling import Refusal
from services.launcher.models.pair import default_model
from shared.errors import StartError
from shared.model.llama import plugins
from shared.settings import command_line

ROOT: Final = Path(__file__).parents[2]
WANTED_BYTES: Final = 60_000_000
_LLAMA: Final = "llama-cpp-python"
_GLIBC: Final = range(5, 40)  # minor versions that wheels name; pip wants each told
_CODE: Final = ("services", "shared", "pyproject.toml", "README.md", "LICENSE")


def main(
    to: Annotated[Path, typer.Option("--to", help="The folder to make; a kit that is there is replaced.")] = ROOT
    / FOLDER,
    python: Annotated[
        str, typer.Option("--python", help="The version of Python on the other machine, such as 3.12.")
    ] = ".".join(platform.python_version_tuple()[:2]),
    backend: Annotated[
        list[str],
        typer.Option("--backend", help="A backend that was added here; may be repeated."),
    ] = ["vulkan"],  # noqa: B006 - typer copies it
    leave_out: Annotated[
        list[str], typer.Option("--leave-out", help="A package that the other machine has; may be repeated.")
    ] = ["hf-xet"],  # noqa: B006 - downloads from the hub use it, and a check has none
    llama_wheel: Annotated[
        Path | None,
        typer.Option(
            help="A wheel of llama-cpp-python that runs on the other machine; otherwise one for any processor is made."
        ),
    ] = None,
) -> None:
    """Gather what `make device-check` needs on a machine without a network."""
    console = Console(highlight=False, soft_wrap=True)
    _check(to, python, backend, llama_wheel)
    with tempfile.TemporaryDirectory(prefix=".device-kit-", dir=to.resolve().parent) as parent:
        made = Path(parent) / "kit"
        made.mkdir()
        console.print(f"fetching wheels for Python {python}")
        _wheels(made / WHEELS, python, leave_out)
        console.print("adding draftmesh and llama.cpp")
        _own_wheel(made / WHEELS)
        _llama(made / WHEELS, llama_wheel)
        for name in backend:
            console.print(f"packing the backend {name}")
            _backend(made / BACKENDS, name)
        _loader(made / LIBRARIES, backend)
        random_model.keep_vocabulary(default_model(), made / VOCABULARY)
        kit = manifest.write(made, python=python, machine=platform.machine(), left_out=leave_out)
        shutil.rmtree(to, ignore_errors=True)
        made.rename(to)
    _tell(console, to, kit)


def _check(to: Path, python: str, backends: Sequence[str], llama_wheel: Path | None) -> None:
    if not re.fullmatch(r"3\.\d+", python):
        raise StartError("--python", python, "a version such as 3.12")
    if to.exists() and not (to / manifest.NAME).exists():
        raise StartError("--to", to, "exists and is no kit; name another folder")
    if not to.resolve().parent.is_dir():
        raise StartError("--to", to, "a folder in one that exists")
    if llama_wheel is not None and not llama_wheel.is_file():
        raise StartError("--llama-wheel", llama_wheel, "no such file")
    for name in backends:
        if name not in plugins.installed():
            here = ", ".join(plugins.installed()) or "none"
            raise StartError("--backend", name, f"not here ({here}); `draftmesh backend add {name}` fetches it")


def requirements(project: str, llama_needs: Sequence[str]) -> list[str]:
    """What `pyproject.toml` and llama-cpp-python need, without llama-cpp-python itself and without extras."""
    wanted: list[str] = tomllib.loads(project)["project"]["dependencies"]
    return [need for need in (*wanted, *llama_needs) if not need.startswith(_LLAMA) and "extra ==" not in need]


def _wheels(folder: Path, python: str, leave_out: Sequence[str]) -> None:
    folder.mkdir()
    needs = requirements((ROOT / "pyproject.toml").read_text(), importlib.metadata.requires(_LLAMA) or [])
    machine = platform.machine()
    tags = [f"manylinux_2_{minor}_{machine}" for minor in _GLIBC] + [f"manylinux2014_{machine}"]
    _pip(
        *("download", "--only-binary=:all:", "--python-version", python, "--implementation", "cp"),
        *(word for tag in tags for word in ("--platform", tag)),
        *("--constraint", str(ROOT / "constraints.txt"), "--dest", str(folder), *needs),
    )
    for name in leave_out:
        for wheel in folder.glob(f"{name.replace('-', '_')}-*.whl"):
            wheel.unlink()


def _own_wheel(folder: Path) -> None:
    """draftmesh's own, built from a copy, since a build leaves folders behind."""
    with tempfile.TemporaryDirectory() as copy:
        for name in _CODE:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, Path(copy) / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, copy)
        _pip("wheel", "--no-deps", "--wheel-dir", str(folder), copy)


def _llama(folder: Path, given: Path | None) -> None:
    """The wheel that was given, or the one for any processor, which is compiled now if it was not before."""
    try:
        shutil.copy(given or llama.wheel(llama.pinned(portable=True), portable=True, anew=False), folder)
    except Refusal as error:
        raise StartError("device-kit", "llama.cpp", str(error)) from None


def _backend(folder: Path, name: str) -> None:
    folder.mkdir(exist_ok=True)
    with tarfile.open(folder / f"{name}.tar.xz", "w:xz") as archive:
        archive.add(plugins.folder() / name, arcname=name)


def _loader(folder: Path, backends: Sequence[str]) -> None:
    """The Vulkan loader, which a machine may lack that has a driver."""
    name = ctypes.util.find_library("vulkan")
    if "vulkan" not in backends or name is None:
        return
    ctypes.CDLL(name)
    path = next(
        line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libvulkan.so" in line
    )
    folder.mkdir()
    shutil.copy(Path(path).resolve(), folder / name)


def _pip(*arguments: str) -> None:
    """Run pip. Raises `StartError` with its own last line."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "-qq", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if line.startswith("ERROR")] or ["it said nothing"]
        raise StartError("pip", arguments[0], lines[-1].removeprefix("ERROR: "))


def _tell(console: Console, folder: Path, kit: manifest.Kit) -> None:
    sizes = {name: (folder / name).stat().st_size for name in kit.files}
    total = sum(sizes.values())
    console.print(f"{folder} holds {total / 1e6:.0f} MB in {len(sizes)} files, without {', '.join(kit.left_out)}")
    if total > WANTED_BYTES:
        largest = sorted(sizes, key=lambda name: -sizes[name])[:4]
        told = ", ".join(f"{Path(name).name.split('-')[0]} ({sizes[name] / 1e6:.0f} MB)" for name in largest)
        console.print(f"That is more than {WANTED_BYTES / 1e6:.0f} MB; the largest are {told}. --leave-out numpy")
    console.print("Bring it along with this checkout; there, `make device-check` takes it from here.")


if __name__ == "__main__":
    command_line.run(command_line.command(main), "python -m bench.device.kit")
