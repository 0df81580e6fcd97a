"""Transcripts that answers are compared with, byte for byte but for what differs from run to run.

    golden.check("chat-text", body)     # against tests/golden/chat-text.txt

`GOLDEN=update pytest …` writes the files instead; read the difference before committing it. Ask with a fixed `seed`, so
that the rest is the same every time.
"""

import os
import re
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parent / "golden"
_UPDATE: Final = os.environ.get("GOLDEN") == "update"
_ID: Final = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{16,}(?![0-9A-Za-z])")
_TIME: Final = re.compile(
    r'("(?:created|created_at|completed_at|[a-z_]+_ms|[a-z_]+_per_second|[a-z_]*duration)": ?)'
    r'(?:-?[0-9][0-9.eE+-]*|"[^"]*")'
)


def normalised(text: str) -> str:
    """The text with random ids numbered in the order of their first appearance, and times and durations masked."""
    ids: dict[str, str] = {}
    numbered = _ID.sub(lambda match: ids.setdefault(match[0], f"<id {len(ids) + 1}>"), text)
    return _TIME.sub(r"\1<time>", numbered)


def check(name: str, body: str | bytes) -> None:
    """Fails unless the answer is the one in tests/golden/`name`.txt."""
    text = normalised(body if isinstance(body, str) else body.decode())
    path = _FOLDER / f"{name}.txt"
    if _UPDATE:
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"no transcript {path.name}: write it with GOLDEN=update"
    assert text == path.read_text(encoding="utf-8")
