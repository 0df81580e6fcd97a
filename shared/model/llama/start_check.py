"""Whether llama.cpp starts at all: a build for another processor ends the process that tries."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from shared.errors import StartError
from shared.model.llama import self_test
from shared.model.llama.self_test import SelfTestOutcome, State
from shared.model.llama.verdicts import SelfTestVerdict, Verdicts

REBUILD: Final = "rebuild it for this processor with `make llama`, or use the container image, which runs on any"


def hold(folder: Path, attempt: Callable[[], SelfTestOutcome] = self_test.run) -> None:
    """Return if the libraries in `folder` start here, which a child process tries once. Raises `StartError` if not."""

    def start() -> SelfTestVerdict | None:
        outcome = attempt()
        if outcome.state is State.FAILED:
            raise StartError("llama.cpp", folder, f"it does not start on this processor ({outcome.what}); {REBUILD}")
        return SelfTestVerdict() if outcome.state is State.PASSED else None

    Verdicts([folder]).once("start", start)
