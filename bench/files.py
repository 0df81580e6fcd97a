"""Model files that only benchmarks need, made from the default model and kept beside the pair's folder."""

from pathlib import Path
from typing import Final

from services.launcher.models import gguf_copy
from services.launcher.models.gguf_copy import GgufCopy, Progress
from services.launcher.models.pair import Pair

SLOW_FACTOR: Final = 4  # the 8-bit draft at four times its width: a token then costs about 0.16 of a target step


def slow_draft(pair: Pair, source: Path, progress: Progress | None = None) -> Path:
    """The 8-bit draft of `pair` at `SLOW_FACTOR` times its width, built if it is missing.

    It computes the same logits as the 8-bit draft: what is added is zero, and fills blocks of its own.
    """
    path = _folder(pair) / f"draft-8bit-wide{SLOW_FACTOR}.gguf"
    if not path.exists():
        gguf_copy.write(source, [GgufCopy(path=path, quant="Q8_0", factor=SLOW_FACTOR)], progress)
    return path


def _folder(pair: Pair) -> Path:
    home = pair.target.parent  # its name holds the digest of the source
    folder = home.with_name(f"bench-{home.name}")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
