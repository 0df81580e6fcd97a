"""Copies of the target in fewer bits, kept in the cache between runs: drafters of the same vocabulary."""

from pathlib import Path

from services.launcher.models import gguf_copy
from services.launcher.models.gguf_copy import GgufCopy
from shared.folders import cache_folder


def requantised(target: Path, quant: str) -> Path:
    """The model at `target` as `quant`."""
    folder = cache_folder() / "tests"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{target.stem}-as-{quant}.gguf"
    if not path.exists():
        gguf_copy.write(target, [GgufCopy(path=path, quant=quant)])
    return path
