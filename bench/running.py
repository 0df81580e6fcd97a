"""How a benchmark runs: on one console, with the pair of models built first, and with one line if it cannot go on."""

import sys
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol, TypeVar

from rich.console import Console

from bench import pairs
from bench.pairs import PairName
from services.launcher.bench import machine
from services.launcher.clients.streaming import AnswerError
from services.launcher.fleet.stack import StackError, run_to_end
from services.launcher.models.pair import Pair
from services.launcher.models.progress import building
from shared.errors import StartError
from shared.folders import cache_folder
from shared.settings import command_line

console: Final = Console(width=None if sys.stdout.isatty() else 120)


class Named(Protocol):
    """A part of a benchmark that an option chooses by its name."""

    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


def chosen(option: str, names: Iterable[str], parts: Sequence[T]) -> list[T]:
    """The named parts in their own order, all of them without names. Raises `StartError` naming `option`."""
    known = [part.name for part in parts]
    for name in names:
        if name not in known:
            raise StartError(option, name, f"must be one of {', '.join(known)}")
    return [part for part in parts if not names or part.name in names]


def build(name: PairName = PairName.WIDENED) -> Pair:
    """A pair of models, with progress where something is fetched or built. Raises `StartError`."""
    with building(console) as progress:
        return pairs.build(name, cache_folder(), progress)


def of_pair(results: Path, name: PairName) -> Path:
    """The file of results for a pair: trends are told by the widened one, so no other pair replaces its file."""
    return results if name is PairName.WIDENED else results.with_stem(f"{results.stem}-{name}")


def head(settings: dict[str, Any], **of_machine: Any) -> dict[str, Any]:
    """What a file of results begins with: when, UTC, on which machine, and what was asked."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {**asdict(machine.look()), **of_machine},
        "settings": settings,
    }


def to_end(main: Coroutine[Any, Any, object], kept: str = "") -> NoReturn:
    """Run `main` and exit. A fleet or an answer that fails is one line, with what was `kept`."""

    async def run() -> int:
        await main
        return 0  # a target that was missed is a finding, not a failure of the measurement

    try:
        sys.exit(run_to_end(run()))
    except (StackError, AnswerError) as error:
        command_line.refuse(f"{error} {kept}")
