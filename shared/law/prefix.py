"""A 64-bit rolling hash names every prefix of a request, so that one number says where a proposal attaches.

Pure: integers in, integers out. A collision costs acceptance, never correctness, because only the target decides.
"""

from collections.abc import Iterable

_MASK = (1 << 64) - 1
_MULTIPLIER = 0xFF51AFD7ED558CCD  # MurmurHash3's 64-bit finaliser: odd, with good avalanche
EMPTY = 0x9E3779B97F4A7C15  # the hash of no tokens; not zero, so that token 0 changes it


def extend(prefix_hash: int, token: int) -> int:
    """The hash of the prefix that `prefix_hash` names followed by `token`."""
    mixed = ((prefix_hash ^ (token + 1)) * _MULTIPLIER) & _MASK
    return mixed ^ (mixed >> 32)


def extend_all(prefix_hash: int, tokens: Iterable[int]) -> int:
    """The hash after appending every token of `tokens` in order."""
    for token in tokens:
        prefix_hash = extend(prefix_hash, token)
    return prefix_hash
