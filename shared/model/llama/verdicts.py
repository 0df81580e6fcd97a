"""Verdicts of self-tests on disk: one small JSON file for each build of llama.cpp on each processor."""

import hashlib
import json
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import structlog
from filelock import FileLock

from shared.folders import cache_folder

logger = structlog.get_logger()

_VERSION: Final = 1  # of what is tested; raise it when a verdict's meaning changes


@dataclass(frozen=True, slots=True)
class SelfTestVerdict:
    """The verdict of a self-test. `note` tells people what happened and what follows; empty if all is well."""

    extra_buffers: bool = True  # whether llama.cpp may rearrange weights for faster kernels
    note: str = ""


class Verdicts:
    """The verdicts about the libraries in `folders`, on this processor."""

    def __init__(self, folders: Sequence[Path]) -> None:
        identity = [_VERSION, _processor(), [_libraries(folder) for folder in folders]]
        name = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:24]
        self._path = cache_folder() / "self-test" / f"{name}.json"

    def find(self, subject: str) -> SelfTestVerdict | None:
        """The verdict about `subject`, or None; a damaged file counts as none."""
        try:
            found = self._read()[subject]
            return SelfTestVerdict(bool(found["extra_buffers"]), str(found["note"]))
        except (KeyError, TypeError):
            return None

    def keep(self, subject: str, verdict: SelfTestVerdict) -> None:
        """Save a verdict; on a read-only disk the next process tests again. Call it within `one_at_a_time`."""
        try:
            temporary = self._path.with_suffix(f".{os.getpid()}.tmp")
            temporary.write_text(json.dumps({**self._read(), subject: asdict(verdict)}))
            temporary.replace(self._path)
        except OSError as error:
            logger.warning("self_test_not_kept", error=str(error))

    def once(self, subject: str, attempt: Callable[[], SelfTestVerdict | None]) -> SelfTestVerdict | None:
        """The verdict about `subject`, or that of an `attempt`, which only the first of several processes makes."""
        if found := self.find(subject):
            return found
        with self.one_at_a_time():
            verdict = self.find(subject)
            if verdict is None and (verdict := attempt()) is not None:
                self.keep(subject, verdict)
            return verdict

    @contextmanager
    def one_at_a_time(self) -> Iterator[None]:
        """Processes that start together test one after the other, so that all but the first find the verdict."""
        with ExitStack() as stack:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                stack.enter_context(FileLock(self._path.with_suffix(".lock")))
            except OSError as error:
                logger.debug("self_test_not_locked", error=str(error))
            yield

    def _read(self) -> dict[str, dict[str, object]]:
        try:
            data = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        return data if isinstance(data, dict) else {}


def _libraries(folder: Path) -> list[tuple[str, int, int]]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]


def _processor() -> list[str]:
    """The processor and its features, because different machines may share a home folder."""
    wanted = ("model name", "flags", "Features", "CPU part")
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0].splitlines()
    except OSError:
        lines = []
    return [platform.machine(), platform.processor(), *(line for line in lines if line.startswith(wanted))]
