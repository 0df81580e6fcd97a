"""Decodes compressed bodies: `gzip`, `deflate` and `zstd`, with a bound on what comes out.

A body of a few kilobytes can stand for gigabytes. Decoding ends at the bound, and the window of zstd, which its decoder
allocates beforehand, is no larger. Codings: RFC 9110 section 8.4, RFC 8878.
"""

import sys
import zlib
from collections.abc import Callable
from typing import Final, Protocol

from services.gateway.errors import ApiError, invalid

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ACCEPTED: Final = "gzip, deflate, zstd"
_WINDOW_LOG: Final = 25  # 32 MiB, as large as a body may be
_MEMBERS: Final = 16  # a body may be several compressed pieces in a row; each one copies what follows it


class TooLarge(Exception):
    """The decoded body would be larger than the bound."""


class _Decoder(Protocol):
    """One compressed piece."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def _deflate(data: bytes) -> _Decoder:
    """Some clients leave out the header of zlib that the coding has."""
    headed = data[:1] and data[0] & 0xF == zlib.DEFLATED
    return zlib.decompressobj(zlib.MAX_WBITS if headed else -zlib.MAX_WBITS)


_DECODERS: Final[dict[str, Callable[[bytes], _Decoder]]] = {
    "gzip": lambda _: zlib.decompressobj(zlib.MAX_WBITS | 16),
    "x-gzip": lambda _: zlib.decompressobj(zlib.MAX_WBITS | 16),
    "deflate": _deflate,
    "zstd": lambda _: zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}),
}


def coding(header: str) -> str:
    """The coding that a `Content-Encoding` header names; "" for none. Raises a 415 `ApiError` for an unknown one."""
    names = [name for name in map(str.strip, header.lower().split(",")) if name not in ("", "identity")]
    if not names:
        return ""
    if len(names) == 1 and names[0] in _DECODERS:
        return names[0]
    sentence = f"Content-Encoding '{header[:64]}' is not supported: send the body as it is, or as one of {ACCEPTED}."
    raise ApiError(415, sentence, code="unsupported_content_encoding")


def decoded(data: bytes, coding: str, most: int) -> bytes:
    """The body before it was compressed. Raises `TooLarge` beyond `most` bytes, a 400 `ApiError` for broken data."""
    pieces: list[bytes] = []
    room = most
    try:
        for _ in range(_MEMBERS):
            decoder = _DECODERS[coding](data)
            pieces.append(decoder.decompress(data, room + 1))
            room -= len(pieces[-1])
            if room < 0:
                raise TooLarge
            if not decoder.eof:
                break
            data = decoder.unused_data
            if not data:
                return b"".join(pieces)
    except (zlib.error, zstd.ZstdError):
        pass
    raise invalid(None, f"The body is not valid {coding}, as its Content-Encoding says.", "invalid_body")
