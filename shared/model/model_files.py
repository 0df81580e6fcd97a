"""The files of a model on this machine: finds all of them, and says in a sentence why they are no whole model.

llama.cpp finds the other files of a split model by the name of the first one, so their names matter.
"""

from pathlib import Path
from typing import Final

from shared.model import gguf_header, quants
from shared.model.gguf_header import Header

_COUNT: Final = "split.count"  # llama.cpp's keys (llama-arch.cpp); files that are not split have none
_NUMBER: Final = "split.no"
_INPUT: Final = "token_embd.weight"  # every model that writes text has this tensor


class NotWhole(ValueError):
    """The files are no whole model that can write text; the message says why, and what to name instead."""


def shards(path: Path) -> list[Path]:
    """The files beside `path` that belong to its model by their names, in order."""
    if not quants.is_shard(path.name):
        return [path]
    name = quants.stem(path.name)
    return sorted(file for file in path.parent.glob("*.gguf") if quants.stem(file.name) == name)


def headers(path: Path) -> list[Header]:
    """The headers of all files of the model whose first file is `path`, in order.

    Raises `NotWhole`, `NotGGUF` for a file that is damaged or cut off, and `OSError`.
    """
    first = gguf_header.read(path)
    count, number = max(1, first.number(_COUNT)), first.number(_NUMBER)
    name = quants.stem(path.name)
    if number:
        raise NotWhole(f"it is file {number + 1} of the {count} of a split model; name {quants.shard(name, 1, count)}")
    if count > 1 and path.name != quants.shard(name, 1, count):
        raise NotWhole(
            f"it is the first of the {count} files of a split model, and llama.cpp finds the others only if its name"
            f" ends in {quants.shard('', 1, count)}"
        )
    files = [path, *(path.with_name(quants.shard(name, other, count)) for other in range(2, count + 1))]
    absent = [file.name for file in files if not file.exists()]
    if absent:
        raise NotWhole(f"{len(absent)} of its {count} files are not beside it: {_listed(absent)}")
    found = [first, *map(gguf_header.read, files[1:])]
    for place, (file, header) in enumerate(zip(files, found, strict=True)):
        if count > 1 and (header.number(_COUNT), header.number(_NUMBER)) != (count, place):
            raise NotWhole(f"{file.name} belongs to another split model than {path.name}")
    if not any(tensor.name == _INPUT for header in found for tensor in header.tensors):
        raise NotWhole("it is only a part of a model, such as an adapter, a projector or a vocabulary")
    return found


def _listed(names: list[str]) -> str:
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
