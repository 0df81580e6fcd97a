"""A target in a process of its own. In pytest's, a second device would change what other tests see."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import NamedTuple

from services.verifier import load
from services.verifier.calibrate import measure_exactness
from services.verifier.load import LoadedTarget
from shared.errors import StartError
from shared.law.sampling import Logits
from shared.model.llama.placement import place_target
from shared.model.row_costs import PROBE_TEXT
from shared.model.rows import Rows
from shared.settings.verifier_options import VerifierOptions

_loaded: list[LoadedTarget] = []  # in the far process: the one target


@dataclass(frozen=True, slots=True)
class Facts:
    """What the verifier would say of its target, and how far its logits were seen to vary on many rows."""

    device: str
    level: str
    note: str
    noise: float
    min_rows: int


class Run(NamedTuple):
    """Consecutive tokens of a sequence, from position `start` on."""

    sequence: int
    start: int
    tokens: Sequence[int]


class Refused(Exception):
    """The target cannot be had; the message is the start error's."""


class FarTarget:
    """Loads as a verifier does, and decodes what it is told. Raises `Refused`."""

    def __init__(self, variables: Mapping[str, str], settings: VerifierOptions, device: str) -> None:
        context = get_context("spawn")
        self._pool = ProcessPoolExecutor(1, context, _begin, (dict(variables),))
        try:
            self.facts = self._pool.submit(_load, settings, device).result()
        except BaseException:
            self.close()
            raise

    def decode(self, *runs: Run) -> list[Logits]:
        """One decode of all runs; the logits of the first one's rows."""
        return self._pool.submit(_decode, runs).result()

    def forget(self) -> None:
        """Empty every sequence."""
        self._pool.submit(_forget).result()

    def close(self) -> None:
        self._pool.shutdown()


def _begin(variables: dict[str, str]) -> None:
    os.environ.update(variables)


def _load(settings: VerifierOptions, device: str) -> Facts:
    try:
        loaded = load.load(settings, place_target(device))
    except StartError as error:
        raise Refused(str(error)) from None  # a start error does not cross a border between processes
    _loaded.append(loaded)
    strict = loaded.level == "strict"
    noise = 0.0 if strict else measure_exactness(loaded.context, loaded.model.vocabulary.tokenize(PROBE_TEXT)).noise
    return Facts(loaded.device, loaded.level, loaded.note, noise, loaded.min_rows)


def _decode(runs: Sequence[Run]) -> list[Logits]:
    [loaded] = _loaded
    rows = Rows()
    for index, run in enumerate(runs):
        for place, token in enumerate(run.tokens):
            rows.add(token, run.start + place, (run.sequence,), index == 0)
    loaded.context.decode(rows)
    return [loaded.context.logits(row).copy() for row in range(len(runs[0].tokens))]


def _forget() -> None:
    [loaded] = _loaded
    for sequence in range(loaded.context.sequences):
        loaded.context.truncate(sequence, 0)
