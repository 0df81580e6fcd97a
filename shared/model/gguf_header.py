"""Reads the part of a GGUF file before the weights in a tenth of a second: metadata, and the place of each tensor.

gguf's own reader makes several array objects per token: nine seconds for a vocabulary of 50,000. Format: ggml's
`docs/gguf.md`, v2 and v3, little-endian.
"""

import math
import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeVar

from shared.model.tensor_types import size_of

Value = int | float | bool | str | list[int] | list[float] | list[bool] | list[bytes]

_SCALARS: Final = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}  # GGUF's types as struct's
_MAGIC: Final = int.from_bytes(b"GGUF", "little")
_STRING: Final = 8
_ARRAY: Final = 9
_ALIGNMENT: Final = 32  # default of general.alignment
_VOCABULARY: Final = "tokenizer."
_MOST: Final = 1 << 24  # most values of an array, and most tensors: far more than any model has

T = TypeVar("T")


class NotGGUF(ValueError):
    """The file is not a GGUF that this release can read."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor: `shape` as numpy has it, its type as ggml numbers them, and its `size` bytes from `start` on."""

    name: str
    shape: tuple[int, ...]
    kind: int
    start: int
    size: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class ValueLocation:
    """Where the value of a key lies in the file, from `at` to `end`, and its type as GGUF numbers them.

    The key itself is at `start`.
    """

    kind: int
    at: int
    end: int
    start: int = 0


@dataclass(frozen=True, slots=True)
class Header:
    """All metadata by key, and all tensors in the order of the file. Texts in arrays are bytes.

    The metadata ends at byte `end` of the file; `places` says where the values are.
    """

    metadata: dict[str, Value]
    tensors: tuple[Tensor, ...]
    places: dict[str, ValueLocation] = field(default_factory=dict)
    end: int = 0

    @property
    def alignment(self) -> int:
        """The number of which every tensor's start is a multiple."""
        return self.number("general.alignment", _ALIGNMENT)

    def number(self, key: str, default: int = 0) -> int:
        """An integer of the metadata, or `default` if there is none under `key`."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) else default

    def numbers(self, key: str, count: int, default: int = 0) -> list[int]:
        """`count` integers under `key`; a single one stands for all."""
        value = self.metadata.get(key)
        if isinstance(value, list) and len(value) >= count and all(isinstance(one, int) for one in value):
            return [int(one) for one in value[:count]]
        return [self.number(key, default)] * count

    def text(self, key: str) -> str:
        """A text of the metadata, or an empty one."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else ""

    def texts(self, key: str) -> list[bytes]:
        value = self.metadata.get(key)
        return [one for one in value if isinstance(one, bytes)] if isinstance(value, list) else []


def read(path: Path) -> Header:
    """The header of `path`. Raises `NotGGUF` for anything but a GGUF, `OSError` if it cannot be read."""
    return _read(path, _Reader.header)


def read_opening(path: Path) -> dict[str, Value]:
    """The metadata before the vocabulary, in a millisecond: enough to tell the kind of model. Raises as `read` does."""
    return _read(path, _Reader.opening)


def _read(path: Path, part: "Callable[[_Reader], T]") -> T:
    with path.open("rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return part(_Reader(data))
        except (_Cut, struct.error):
            raise NotGGUF(f"{path.name} was cut off, such as by a download that broke: fetch it again") from None
        except (ValueError, UnicodeDecodeError, KeyError, OverflowError) as error:
            raise NotGGUF(f"{path} is not a GGUF file that can be read ({error})") from None


class _Cut(Exception):
    """The file ends too early."""


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0

    def header(self) -> Header:
        tensors, values = self._counts()
        metadata: dict[str, Value] = {}
        places: dict[str, ValueLocation] = {}
        for _ in range(values):
            start = self._at
            key = self._string().decode()
            (kind,) = self._take("I")
            at = self._at
            metadata[key] = self._value(kind)
            places[key] = ValueLocation(kind, at, self._at, start)
        end = self._at
        return Header(metadata, self._tensors(tensors, metadata), places, end)

    def opening(self) -> dict[str, Value]:
        metadata: dict[str, Value] = {}
        for _ in range(self._counts()[1]):
            key = self._string().decode()
            if key.startswith(_VOCABULARY):
                break
            metadata[key] = self._value(self._take("I")[0])
        return metadata

    def _counts(self) -> tuple[int, int]:
        magic, version = self._take("II")
        if magic != _MAGIC or version not in (2, 3):
            raise ValueError("not GGUF version 2 or 3")
        tensors, values = self._take("QQ")
        return _few(tensors), _few(values)

    def _tensors(self, count: int, metadata: dict[str, Value]) -> tuple[Tensor, ...]:
        names, shapes, kinds, offsets = [], [], [], []
        for _ in range(count):
            names.append(self._string().decode())
            shapes.append(self._take("Q" * self._take("I")[0])[::-1])
            kind, offset = self._take("IQ")
            kinds.append(kind)
            offsets.append(offset)
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError("a bad alignment")
        start = -(-self._at // alignment) * alignment
        least = [offset + size_of(shape, kind) for offset, shape, kind in zip(offsets, shapes, kinds, strict=True)]
        if least and start + max(least) > len(self._data):
            raise _Cut
        # A tensor ends where the next one begins, so even unknown quantisations have a size.
        ends = sorted({*offsets, max(0, len(self._data) - start)})
        following = dict(pairwise(ends))
        return tuple(
            Tensor(name, shape, kind, start + offset, following.get(offset, offset) - offset)
            for name, shape, kind, offset in zip(names, shapes, kinds, offsets, strict=True)
        )

    def _take(self, form: str) -> tuple[int, ...]:
        values = struct.unpack_from(f"<{form}", self._data, self._at)
        self._at += struct.calcsize(f"<{form}")
        return values

    def _string(self) -> bytes:
        (length,) = self._take("Q")
        start, self._at = self._at, self._at + length
        if self._at > len(self._data):
            raise _Cut
        return self._data[start : self._at]

    def _value(self, kind: int) -> Value:
        if kind == _STRING:
            return self._string().decode(errors="replace")
        if kind == _ARRAY:
            element, count = self._take("IQ")
            return self._array(element, _few(count))
        return self._take(_SCALARS[kind])[0]

    def _array(self, kind: int, count: int) -> Value:
        if kind == _STRING:
            return [self._string() for _ in range(count)]
        if kind == _ARRAY:
            raise ValueError("an array of arrays")
        return list(self._take(f"{count}{_SCALARS[kind]}"))


def _few(count: int) -> int:
    if count > _MOST:
        raise ValueError(f"{count} entries")
    return count
