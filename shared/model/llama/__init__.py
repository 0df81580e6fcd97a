"""llama.cpp: libraries, devices, models, vocabularies and contexts. Nothing outside this package imports llama_cpp.

A failed assert inside ggml ends the process, so this package checks ranges before every call. Upstream:
llama.cpp's `include/llama.h`.
"""

import os
from typing import Final

# OpenMP's threads spin while they wait for the next part of a decode, and after its last part for the next decode. By
# default they spin for some 10 ms, and take a core from what runs between two decodes, such as another model's decode.
# Half a millisecond, as long as this many spins take, is longer than most waits within a decode. The library reads the
# variable once, when it is loaded.
_SPINS: Final = "10000"

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
