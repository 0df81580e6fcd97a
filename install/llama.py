"""Puts llama-cpp-python into the environment whose Python runs this, compiled for this processor or for any.

pip keeps one wheel a release, whatever it was compiled with; here each way to compile has a folder of its own in pip's
cache, named by all that decides what comes out. `CMAKE_ARGS` are added to ours, so `CMAKE_ARGS=-DGGML_CUDA=ON make
llama` compiles for a card.
"""

import argparse
import hashlib
import importlib.metadata
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from install.compiling import LEFT_OUT, Refusal, compile_wheel

HERE: Final = Path(__file__).resolve().parent
PACKAGE: Final = "llama_cpp_python"
LIBRARIES: Final = "llama_cpp/lib/"

_COMMON: Final = (f"-DCMAKE_PROJECT_llama_cpp_INCLUDE={HERE / 'llama.cmake'}", "-DLLAVA_BUILD=OFF")
_PORTABLE: Final = (
    "-DGGML_NATIVE=OFF",
    "-DGGML_BACKEND_DL=ON",
    "-DGGML_CPU_ALL_VARIANTS=ON",
    f"-DCMAKE_INSTALL_BINDIR={LIBRARIES.rstrip('/')}",  # the variants, beside the libraries that load them
)
# The processors that a portable build must have code for, the weakest and the strongest among them. ggml names them.
VARIANTS: Final = {
    "x86_64": (
        *("x64", "sse42", "sandybridge", "ivybridge", "piledriver", "haswell", "alderlake", "skylakex", "cannonlake"),
        *("cascadelake", "icelake", "cooperlake", "zen4", "sapphirerapids"),
    ),
    "aarch64": (
        *("armv8.0_1", "armv8.2_1", "armv8.2_2", "armv8.2_3", "armv8.6_1", "armv8.6_2", "armv9.2_1", "armv9.2_2"),
    ),
}
_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_DEGRADED: Final = 3  # exit status of shared.model.llama.fitness: works, but not all of it
_FROM_PIP: Final = "pip"  # in place of a key: a wheel that pip had cached, compiled nobody knows how


@dataclass(frozen=True)
class BuildRecipe:
    """What decides the wheel that comes out."""

    version: str
    arguments: tuple[str, ...]  # CMake's
    compiler: str
    target: str  # the processor that it is for: its kind alone if the wheel is portable

    def key(self) -> str:
        """A name that differs where the wheel does."""
        files = [(HERE / name).read_text() for name in ("llama.cmake", "amx_tile_config.h")]
        # Where this folder lies does not change the wheel.
        arguments = [argument.replace(str(HERE), "") for argument in self.arguments]
        parts = [self.version, *arguments, self.compiler, self.target, platform.machine(), LEFT_OUT, *files]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def recipe(constraints: str, portable: bool, given: str, compiler: str) -> BuildRecipe:
    """How to compile; `constraints` is the text of `constraints.txt`, `given` the user's `CMAKE_ARGS`."""
    found = re.search(rf"^{PACKAGE}==(\S+)$", constraints, re.MULTILINE)
    if not found:
        raise Refusal(f"constraints.txt names no version of {PACKAGE}")
    arguments = (*_COMMON, *(_PORTABLE if portable else ()), *shlex.split(given))
    return BuildRecipe(found[1], arguments, compiler, "" if portable else processor())


def processor() -> str:
    """What the processor of this machine can do, as far as the system says."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0].splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part")))


def compiler() -> str:
    """The C++ compiler's name and version. Raises `Refusal` if there is none."""
    command = shlex.split(os.environ.get("CXX", "")) or [
        name for name in ("c++", "g++", "clang++") if shutil.which(name)
    ]
    if not command or not shutil.which(command[0]):
        missing = f"{command[0]}, which CXX names, is not there" if command else "there is no C++ compiler"
        raise Refusal(f"{missing}; on Debian and Ubuntu `apt-get install build-essential` brings one")
    said = subprocess.run([command[0], "--version"], capture_output=True, text=True).stdout
    return said.partition("\n")[0]


def missing_variants(names: Sequence[str]) -> list[str]:
    """The processors for which none of the files `names` has code; all known ones are wanted."""
    wanted = VARIANTS.get(_MACHINES.get(platform.machine().lower(), platform.machine()), ())
    return [variant for variant in wanted if f"{LIBRARIES}libggml-cpu-{variant}.so" not in names]


def main() -> None:
    """Install, check, or make a portable build."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--anew", action="store_true", help="compile even if there is a wheel already")
    parser.add_argument("--portable", action="store_true", help="for any processor: it picks its code when it starts")
    parser.add_argument("--unpack", type=Path, metavar="FOLDER", help="put the libraries there and install nothing")
    parser.add_argument("--check", action="store_true", help="test what is installed; compile anew what pip had cached")
    arguments = parser.parse_args()
    try:
        if arguments.check:
            check()
        elif arguments.unpack:
            unpack(wheel(pinned(arguments.portable), arguments.portable, arguments.anew), arguments.unpack)
        else:
            install(arguments.portable, arguments.anew)
    except Refusal as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def install(portable: bool, anew: bool) -> None:
    """Install the wheel that is wanted, unless it is there."""
    given = os.environ.get("CMAKE_ARGS", "")
    wanted = recipe(_constraints().read_text(), True, "", "").version
    if not anew and not given and _installed() == wanted:
        return
    if not anew and not given and not portable and (cached := _cached_by_pip(wanted)):
        print(f"taking {cached.name} from pip's cache", flush=True)
        _install(cached, _FROM_PIP)
        return
    ours = pinned(portable)
    if not anew and _installed() == wanted and _made_by() == ours.key():
        return
    _install(wheel(ours, portable, anew), ours.key())


def check() -> None:
    """Run the self-test. A wheel of unknown making that fails it is compiled anew, and tested again."""
    status = _self_test()
    if status and _made_by() == _FROM_PIP:
        print("that wheel lay in pip's cache, so llama.cpp is compiled anew", flush=True)
        install(portable=False, anew=True)
        status = _self_test()
    if status not in (0, _DEGRADED):
        raise Refusal("llama.cpp does not work here; the lines above say how")


def wheel(ours: BuildRecipe, portable: bool, anew: bool) -> Path:
    """The wheel that `ours` makes, compiled now if it was not before."""
    folder = _cache() / f"{PACKAGE}-{ours.key()}"
    found = sorted(folder.glob("*.whl"))
    if found and not anew:
        return found[0]
    which, minutes = ("any", 15) if portable else ("this", 4)
    print(
        f"compiling llama.cpp for {which} processor: about {minutes} minutes on two cores, once; later installs"
        f" take the wheel from {folder}",
        flush=True,
    )
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as made:
        fresh = compile_wheel(HERE / "llama.txt", shlex.join(ours.arguments), Path(made))
        with zipfile.ZipFile(fresh) as archive:
            missing = missing_variants(archive.namelist()) if portable else []
        if missing:
            raise Refusal(f"the build has no code for {', '.join(missing)}; is the compiler too old?")
        return fresh.replace(folder / fresh.name)


def unpack(source: Path, folder: Path) -> None:
    """Put the libraries of a wheel into `folder`, and nothing else: `LLAMA_CPP_LIB_PATH` may name it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with zipfile.ZipFile(source) as archive:
        for name in archive.namelist():
            if name.startswith(LIBRARIES) and not name.endswith("/"):
                (folder / name.removeprefix(LIBRARIES)).write_bytes(archive.read(name))


def pinned(portable: bool) -> BuildRecipe:
    """The recipe of the version that is pinned, with this shell's `CMAKE_ARGS` and the compiler at hand."""
    return recipe(_constraints().read_text(), portable, os.environ.get("CMAKE_ARGS", ""), compiler())


def _constraints() -> Path:
    return HERE.parent / "constraints.txt"


def _installed() -> str:
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _origin() -> Path:
    """Where it is written how the installed one was made."""
    return Path(sys.prefix) / ".llama-origin"


def _made_by() -> str:
    """The key of the installed one, or `_FROM_PIP`; empty if it was not installed by this program."""
    return _origin().read_text() if _origin().exists() else ""


def _install(file: Path, origin: str) -> None:
    again = ["--force-reinstall", "--no-deps"] if _installed() else []
    command = [*_pip("install"), "--quiet", *again, "--constraint", str(_constraints()), str(file)]
    if subprocess.run(command).returncode:
        raise Refusal(f"pip cannot install {file}; its lines above say why")
    _origin().write_text(origin)


def _cached_by_pip(version: str) -> Path | None:
    """A wheel of this version that pip made earlier for any program, if it keeps one."""
    said = subprocess.run(
        [*_pip("cache"), "list", PACKAGE, "--format=abspath"], capture_output=True, text=True
    ).stdout.splitlines()
    return next((Path(line) for line in said if Path(line).name.startswith(f"{PACKAGE}-{version}-")), None)


def _cache() -> Path:
    """pip's cache, or a folder that is not kept where pip keeps none."""
    done = subprocess.run([*_pip("cache"), "dir"], capture_output=True, text=True)
    return Path(done.stdout.strip()) if done.returncode == 0 else Path(tempfile.mkdtemp())


def _pip(command: str) -> list[str]:
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", command]


def _self_test() -> int:
    return subprocess.run([sys.executable, "-P", "-m", "shared.model.llama.fitness"]).returncode


if __name__ == "__main__":
    main()
