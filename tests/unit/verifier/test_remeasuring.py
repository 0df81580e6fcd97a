"""Costs that were measured on a busy machine are measured again while nothing runs, and only good ones are kept."""

import math
from pathlib import Path

import pytest

from services.verifier.calibrate import Cache, Calibration, LogitDifferences
from services.verifier.remeasuring import FIRST_S, LONGEST_S, Remeasuring
from shared.law.speedup import RowCosts
from shared.machine.load import CpuTime
from shared.model.sequences import Sequences
from tests.toys import ToyTarget

EQUAL = LogitDifferences(0.0, 0.0, 0.0, 0.0)
TEXT = tuple(range(2, 62))
TRUE_MS = RowCosts({1: 10.0, 32: 40.0})


class Box:
    """A verifier that started on a busy machine; `noise` multiplies what decodes take, one after the other."""

    def __init__(self, folder: Path, is_noisy: bool = True) -> None:
        self.noise = [1.0]
        self.now, self.decodes, self.stop_at = 0.0, 0, math.inf
        self.target = ToyTarget(took=self.took)
        self.sequences = Sequences(self.target)
        self.costs = RowCosts({1: 10.0, 2: 20.0, 32: 320.0})
        model = folder / "model.gguf"
        model.write_bytes(b"")
        self.cache = Cache(folder, model)
        self.cache.store({}, EQUAL)
        calibration = Calibration(dict(self.costs.table), EQUAL, self.cache, is_noisy, TEXT)
        self.others = 0.0  # the part of the processor that other programs use
        self.again = Remeasuring(self.target, self.sequences, self.costs, calibration, self.cpu)

    def cpu(self) -> CpuTime:
        return CpuTime(busy=self.now, idle=0.0, own=self.now * (1 - self.others))

    def took(self, rows: int) -> None:
        self.now += TRUE_MS(rows) * self.noise[self.decodes % len(self.noise)] / 1000
        self.decodes += 1

    def attempt(self) -> None:
        self.again.attempt(lambda: self.decodes >= self.stop_at, lambda: self.now)


def test_a_machine_at_rest_gives_the_right_costs_which_are_kept(tmp_path: Path) -> None:
    box = Box(tmp_path)
    assert box.again.after_s == FIRST_S
    box.attempt()
    assert box.costs(32) == pytest.approx(40.0)
    assert box.again.after_s == math.inf
    kept = box.cache.load()
    assert kept is not None
    assert kept[0][32] == pytest.approx(40.0)
    assert kept[1] == EQUAL


def test_an_even_load_counts_as_busy_until_it_is_gone(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.noise, box.others = [2.0], 0.5
    box.attempt()
    assert box.again.due
    assert box.costs(32) == pytest.approx(320.0)
    box.noise, box.others = [1.0], 0.0
    box.attempt()
    assert not box.again.due
    assert box.costs(32) == pytest.approx(40.0)


def test_a_machine_that_is_still_busy_changes_nothing_and_is_tried_less_and_less(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.noise = [1.0, 1.9, 1.4]
    waits = []
    for _ in range(9):
        box.attempt()
        waits.append(box.again.after_s)
    assert waits[:3] == [2 * FIRST_S, 4 * FIRST_S, 8 * FIRST_S]
    assert waits[-1] == LONGEST_S
    assert box.costs(32) == 320.0
    assert box.cache.load() == ({}, EQUAL)


def test_a_request_that_comes_ends_the_attempt_after_one_decode(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.stop_at = 3
    box.attempt()
    assert box.decodes == 3
    assert box.costs(32) == 320.0
    assert box.again.after_s == FIRST_S, "it is tried again at the next rest"
    assert box.sequences.free == box.target.sequences
    assert not any(box.target.cells)


def test_what_was_measured_at_rest_is_never_measured_again(tmp_path: Path) -> None:
    assert Box(tmp_path, is_noisy=False).again.after_s == math.inf
