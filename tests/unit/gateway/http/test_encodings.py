"""Compressed bodies: which codings are known, what they decode to, and that a small body cannot fill the memory."""

import gzip
import sys
import zlib

import pytest

from services.gateway.errors import ApiError
from services.gateway.http.encodings import TooLarge, coding, decoded

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BODY = b'{"messages": [{"role": "user", "content": "Hi"}]}' * 50
MOST = 1 << 20
RAW = zlib.compressobj(wbits=-zlib.MAX_WBITS)
PACKED = {
    "gzip": gzip.compress(BODY),
    "x-gzip": gzip.compress(BODY),
    "deflate": zlib.compress(BODY),
    "zstd": zstd.compress(BODY),
}


@pytest.mark.parametrize(
    ("header", "found"),
    [("", ""), ("identity", ""), ("gzip", "gzip"), ("GZIP", "gzip"), ("x-gzip", "x-gzip"), (" zstd ", "zstd")],
)
def test_known_codings(header: str, found: str) -> None:
    assert coding(header) == found


@pytest.mark.parametrize("header", ["br", "compress", "gzip, zstd", "unheard-of", "gzip;q=1"])
def test_any_other_is_refused_with_what_is_accepted(header: str) -> None:
    with pytest.raises(ApiError, match="one of gzip, deflate, zstd") as caught:
        coding(header)
    assert (caught.value.status, caught.value.code) == (415, "unsupported_content_encoding")
    assert header in caught.value.message


@pytest.mark.parametrize("name", PACKED)
def test_a_body_comes_out_as_it_went_in(name: str) -> None:
    assert decoded(PACKED[name], name, MOST) == BODY
    assert decoded(PACKED[name], name, len(BODY)) == BODY
    with pytest.raises(TooLarge):
        decoded(PACKED[name], name, len(BODY) - 1)


def test_deflate_without_its_header_is_read_too() -> None:
    assert decoded(RAW.compress(BODY) + RAW.flush(), "deflate", MOST) == BODY


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_several_pieces_are_one_body(name: str) -> None:
    assert decoded(PACKED[name] * 3, name, MOST) == BODY * 3
    with pytest.raises(TooLarge):
        decoded(PACKED[name] * 3, name, 3 * len(BODY) - 1)
    with pytest.raises(ApiError):  # so many copies would take long
        decoded(PACKED[name] * 100, name, MOST)


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("broken", [b"", b"{", BODY, b"\x28\xb5\x2f\xfd", b"\x1f\x8b"])
def test_what_is_broken_or_cut_off_is_a_400(name: str, broken: bytes) -> None:
    for data in (broken, PACKED[name][:-1], PACKED[name] + b"x"):
        with pytest.raises(ApiError) as caught:
            decoded(data, name, MOST)
        assert (caught.value.status, caught.value.code) == (400, "invalid_body")
        assert name in caught.value.message


def test_a_bomb_ends_at_the_bound() -> None:
    for name, bomb in (("gzip", gzip.compress(bytes(64 << 20))), ("zstd", zstd.compress(bytes(64 << 20)))):
        assert len(bomb) < 100_000
        with pytest.raises(TooLarge):
            decoded(bomb, name, MOST)


def test_a_window_larger_than_any_body_is_not_allocated() -> None:
    options: dict[int, int] = {
        zstd.CompressionParameter.window_log: 27,
        zstd.CompressionParameter.content_size_flag: 0,
    }
    compressor = zstd.ZstdCompressor(options=options)
    huge = compressor.compress(bytes(10)) + compressor.flush()
    with pytest.raises(ApiError, match="not valid zstd"):
        decoded(huge, "zstd", MOST)
