"""Backends made on the spot by a C compiler: real shared libraries, good ones and every kind of bad one."""

import shutil
import subprocess
from pathlib import Path

from shared.model.llama import library, loading

NAME = "stub"
_SOURCES = Path(__file__).parent


def build(folder: Path, *, interface: int | None = None, crash: bool = False, other_release: bool = False) -> Path:
    """`libggml-stub.so` in `folder`, and beside it the ggml that it was made for: the one here, or another release."""
    folder.mkdir(parents=True, exist_ok=True)
    base = folder / loading.BASE
    if other_release:
        _compile(_SOURCES / "base.c", base, "-Wl,-soname,libggml-base.so")
    else:
        shutil.copyfile(library.path_of("ggml_backend_dev_name"), base)
    wanted = loading.own_interface() if interface is None else interface
    # Linked against a ggml of the name by which prebuilt backends ask for it.
    named = folder / "linked"
    named.mkdir()
    _compile(_SOURCES / "base.c", named / loading.BASE, "-Wl,-soname,libggml-base.so")
    made = folder / f"libggml-{NAME}.so"
    options = [f"-DINTERFACE={wanted}", *(["-DCRASH"] if crash else [])]
    _compile(_SOURCES / "backend.c", made, *options, f"-L{named}", "-lggml-base", "-Wl,-rpath,$ORIGIN")
    shutil.rmtree(named)
    return made


def _compile(source: Path, target: Path, *options: str) -> None:
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(target), str(source), *options], check=True)
