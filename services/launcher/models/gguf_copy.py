"""Copies of a GGUF model in other formats, and wider ones that compute the same function; all of them in one pass.

A file that exists is whole: each is written beside its final name and renamed at the end. The added weights of a wider
model are zero. The file system stores them as holes if it can, so they take no room and no time to write; the processor
still reads and multiplies them.
"""

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, LlamaFileType
from gguf.quants import dequantize, quantize

from services.launcher.models import gguf_head
from services.launcher.models.gguf_head import size_of
from shared.errors import StartError
from shared.model import gguf_header
from shared.model.gguf_header import Header

Progress = Callable[[str, int, int], None]  # file name, bytes written, bytes in all

FORMATS: Final = {
    "F32": LlamaFileType.ALL_F32,
    "Q8_0": LlamaFileType.MOSTLY_Q8_0,
    "Q4_0": LlamaFileType.MOSTLY_Q4_0,
}
_F32: Final = GGMLQuantizationType.F32
_SPARE_BYTES: Final = 64 << 20  # left free on the disk: a full disk breaks more than this
_ROWS: Final = re.compile(r"\.ffn_(gate|up)\.(weight|bias)$")
_COLUMNS: Final = re.compile(r"\.ffn_down\.weight$")


class NotWidenable(ValueError):
    """The model has no dense feed-forward blocks that could be widened, or the factor is no positive integer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufCopy:
    """A file to write: matrices as `quant` and vectors as F32, the feed-forward `factor` times as wide."""

    path: Path
    quant: str
    factor: int = 1


def write(source: Path, copies: Sequence[GgufCopy], progress: Progress | None = None) -> None:
    """Write `copies` of the model in `source`. `progress` is called after each tensor of each file.

    Raises `NotWidenable`, `NotGGUF`, or `StartError` for a disk that is too full.
    """
    header = gguf_header.read(source)
    weights = np.asarray(np.memmap(source, np.uint8, "r"))  # a plain array: a memmap's slices cost more than the work
    files = [_File(copy, header, weights) for copy in copies]
    _check_space(files)
    try:
        with ExitStack() as stack:
            for file in files:
                file.open(stack)
            for index, tensor in enumerate(header.tensors):
                source_tensor = _Source(tensor, weights)
                for file in files:
                    file.put(index, source_tensor)
                    if progress:
                        progress(file.copy.path.name, file.done, file.bytes)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        folder = copies[0].path.parent
        raise StartError(
            "DRAFTMESH_CACHE", folder, "the disk is full; free some space, or name another folder"
        ) from None


def _check_space(files: Sequence["_File"]) -> None:
    for folder in {file.copy.path.parent for file in files}:
        here = [file for file in files if file.copy.path.parent == folder]
        needed, free = sum(file.bytes for file in here), shutil.disk_usage(folder).free
        if free < needed + _SPARE_BYTES:
            raise StartError(
                "DRAFTMESH_CACHE",
                folder,
                f"{', '.join(file.copy.path.name for file in here)} need {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB"
                " are free; name a folder with more room",
            )


class _Source:
    """A tensor of the source; its values and conversions are computed once, and only if a copy needs them."""

    def __init__(self, tensor: gguf_header.Tensor, weights: npt.NDArray[np.uint8]) -> None:
        self._tensor = tensor
        self._bytes = weights[tensor.start :]
        self._made: dict[GGMLQuantizationType, npt.NDArray[np.uint8]] = {}

    @cached_property
    def _values(self) -> npt.NDArray[np.float32]:
        kind = GGMLQuantizationType(self._tensor.kind)
        return np.asarray(dequantize(self._stored(kind), kind), np.float32)

    def _stored(self, kind: GGMLQuantizationType) -> npt.NDArray[np.uint8]:
        *rows, _ = self._tensor.shape
        return self._bytes[: size_of(self._tensor.shape, kind)].reshape(*rows, -1)

    def as_kind(self, kind: GGMLQuantizationType) -> npt.NDArray[np.uint8]:
        """Its rows as bytes of type `kind`."""
        if kind not in self._made:
            if kind == self._tensor.kind:
                self._made[kind] = self._stored(kind)
            else:
                values = self._values if kind == _F32 else quantize(self._values, kind)
                self._made[kind] = np.ascontiguousarray(values).view(np.uint8)
        return self._made[kind]


class _File:
    def __init__(self, copy: GgufCopy, header: Header, weights: npt.NDArray[np.uint8]) -> None:
        if copy.quant not in FORMATS:
            raise ValueError(f"unknown format {copy.quant}: {', '.join(FORMATS)} are known")
        if copy.factor < 1 or copy.factor != int(copy.factor):
            raise NotWidenable(f"a model is widened by a whole factor of at least 1, not {copy.factor}")
        self.copy = copy
        self.done = 0
        self._header = header
        kinds = [GGMLQuantizationType[copy.quant] if len(tensor.shape) > 1 else _F32 for tensor in header.tensors]
        shapes = [_widened(tensor.name, tensor.shape, copy.factor) for tensor in header.tensors]
        names = [tensor.name for tensor in header.tensors]
        self._tensors, self._size = gguf_head.laid_out(zip(names, shapes, kinds, strict=True), header.alignment)
        self._head = gguf_head.make(weights[: header.end].tobytes(), header, self._changes(), self._tensors)
        filled = (size_of(tensor.shape, kind) for tensor, kind in zip(header.tensors, kinds, strict=True))
        self.bytes = len(self._head) + sum(filled)  # without the zeros of a wider model
        self._file: Any = None

    def _changes(self) -> dict[str, int]:
        """The metadata that differs from the source's: the file type, and the width."""
        changes = {gguf_head.FILE_TYPE: int(FORMATS[self.copy.quant])}
        if self.copy.factor > 1:
            key = f"{self._header.text('general.architecture')}.feed_forward_length"
            _check_widenable(self._header, key, self.copy)
            changes[key] = self._header.number(key) * self.copy.factor
        return changes

    def open(self, stack: ExitStack) -> None:
        """Begin the file; it gets its name when `stack` ends without an error."""
        self._file = stack.enter_context(_atomically(self.copy.path))
        self._file.write(self._head)
        self._file.truncate(len(self._head) + self._size)
        self.done = len(self._head)

    def put(self, index: int, source: _Source) -> None:
        """Write the tensor at `index`; the added part stays the zeros of a new file."""
        planned = self._tensors[index]
        data = source.as_kind(GGMLQuantizationType(planned.kind))
        self._file.seek(len(self._head) + planned.offset)
        added = size_of(planned.shape[-1:], planned.kind) - data.shape[-1]
        if added and len(planned.shape) > 1:
            for row in data:
                self._file.write(row)
                self._file.seek(added, os.SEEK_CUR)
        else:
            self._file.write(data)
        self.done += data.nbytes


def _widened(name: str, shape: tuple[int, ...], factor: int) -> tuple[int, ...]:
    if _ROWS.search(name):
        return (shape[0] * factor, *shape[1:])
    return (*shape[:-1], shape[-1] * factor) if _COLUMNS.search(name) else shape


def _check_widenable(header: Header, key: str, copy: GgufCopy) -> None:
    names = [tensor.name for tensor in header.tensors]
    dense = all(any(name.endswith(f".ffn_{part}.weight") for name in names) for part in ("gate", "up", "down"))
    if not dense or key not in header.places or header.places[key].kind != gguf_head.UINT32:
        raise NotWidenable(f"{copy.path.name}: a model without dense gated feed-forward of one width is not widened")
    if quantize(np.zeros(256, np.float32), GGMLQuantizationType[copy.quant]).any():
        raise NotWidenable(f"{copy.path.name}: zeros are not all zero bytes as {copy.quant}; take F32 or Q8_0")


@contextmanager
def _atomically(target: Path) -> Iterator[Any]:
    """A file that replaces `target` when the block ends without an error, and is deleted otherwise."""
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            yield file
            file.flush()
            # Otherwise a power cut after the rename could leave half a file under its final name.
            os.fsync(file.fileno())
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
