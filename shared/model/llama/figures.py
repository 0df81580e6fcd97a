"""The figures in which two copies of ggml must agree so that a backend made for one fits the other.

A backend gets tensors and graphs of the process that loads it, so both must number operations and types alike, and
agree on the sizes of types and tensors. Run as a program, this prints the figures of one library, so that a foreign or
broken library is loaded only into a process of its own.
"""

import ctypes
import re
import sys
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec

_OPERATION: Final = re.compile(r"[A-Z][A-Z0-9_]*")
_TYPE: Final = re.compile(r"[a-z][A-Za-z0-9_]*|DEPRECATED|TYPE_.*")  # the latter were taken out


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one copy of ggml."""

    version: str
    operations: tuple[str, ...]
    types: tuple[tuple[str, int, int], ...]  # name, bytes of a block, values in a block
    tensor_overhead: int  # bytes


def difference(made_for: Figures, here: Figures) -> str:
    """The first figure by which a backend made for one copy of ggml does not fit the other; empty if it fits."""
    if len(made_for.operations) != len(here.operations):
        return f"{len(made_for.operations)} operations, and this llama.cpp has {len(here.operations)}"
    for number, (theirs, ours) in enumerate(zip(made_for.operations, here.operations, strict=True)):
        if theirs != ours:
            return f"{theirs} as operation {number}, and in this llama.cpp that is {ours}"
    if len(made_for.types) != len(here.types):
        return f"{len(made_for.types)} types of numbers, and this llama.cpp has {len(here.types)}"
    for (name, size, block), (other, own_size, own_block) in zip(made_for.types, here.types, strict=True):
        if name != other:
            return f"the type {name} where this llama.cpp has {other}"
        if (size, block) != (own_size, own_block):
            return f"{name} in {size} bytes for {block} values, and this llama.cpp in {own_size} for {own_block}"
    if made_for.tensor_overhead != here.tensor_overhead:
        return f"tensors of {made_for.tensor_overhead} bytes, and this llama.cpp has {here.tensor_overhead}"
    return ""


def read(path: Path) -> Figures:
    """The figures of the `libggml-base` at `path`, which is loaded into this process. Raises `OSError`.

    ggml does not give the lengths of its tables. A table ends at the first entry that is not a name among the library's
    texts.
    """
    base = ctypes.CDLL(str(path))
    texts = _constants(path)

    def function(name: str, result: Any, *arguments: Any) -> Any:
        return ctypes.CFUNCTYPE(result, *arguments)((name, base))

    def table(name: str, pattern: re.Pattern[str]) -> list[str]:
        entry = function(name, ctypes.c_void_p, ctypes.c_int)
        names: list[str] = []
        for index in count():
            address = entry(index) or 0
            text = ctypes.string_at(address).decode(errors="replace") if any(address in span for span in texts) else ""
            if not pattern.fullmatch(text):
                break
            names.append(text)
        return names

    size = function("ggml_type_size", ctypes.c_size_t, ctypes.c_int)
    block = function("ggml_blck_size", ctypes.c_int64, ctypes.c_int)
    types = table("ggml_type_name", _TYPE)
    return Figures(
        version=function("ggml_version", ctypes.c_char_p)().decode(),
        operations=tuple(table("ggml_op_name", _OPERATION)),
        types=tuple((name, size(index), block(index)) for index, name in enumerate(types)),
        tensor_overhead=function("ggml_tensor_overhead", ctypes.c_size_t)(),
    )


def _constants(path: Path) -> list[range]:
    """The addresses of the library's constants in this process, from Linux."""
    spans = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, rights, *_, file = line.split(maxsplit=5)
        if rights.startswith("r--") and file == str(path.resolve()):
            start, end = (int(address, 16) for address in addresses.split("-"))
            spans.append(range(start, end))
    return spans


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(read(Path(sys.argv[1]))))
