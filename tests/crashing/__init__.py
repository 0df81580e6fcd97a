"""A llama.cpp that crashes where it is told to, and is the real one otherwise."""

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Final

import llama_cpp.llama_cpp as C

from shared.model.llama import library

VARIABLE: Final = "TEST_CRASH"  # where: "rows", "always" or "start"
COMPILER: Final = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")

_SOURCE: Final = Path(__file__).parent / "libllama.c"


def build(folder: Path) -> dict[str, str]:
    """Put the library into `folder`; the variables that make a process use it.

    "rows" crashes in decodes of two or more rows unless the model was loaded without extra buffers, "always" whatever
    it was loaded with, "start" as soon as llama.cpp starts.
    """
    real = Path(C._lib._name).resolve()
    for file in library.folder().iterdir():
        if file.name != "libllama.so":
            (folder / file.name).symlink_to(file.resolve())
    parameters = C.llama_model_params
    assert COMPILER is not None
    subprocess.run(
        [
            *(COMPILER, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(folder / "libllama.so")),
            *(str(_SOURCE), f"-DWORDS={ctypes.sizeof(parameters) // 8}", f"-DFLAG={parameters.use_extra_bufts.offset}"),
            *(f"-L{real.parent}", "-Wl,--no-as-needed", "-l:libllama.so.0", f"-Wl,-rpath,{real.parent}", "-ldl"),
        ],
        check=True,
    )
    return {"LLAMA_CPP_LIB_PATH": str(folder)}
