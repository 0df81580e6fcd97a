"""Strict exactness takes the fastest types of keys and values with which bits do not depend on what shares a decode."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from services.verifier import load
from services.verifier.calibrate import FEW_PROBE_ROWS, PROBE_ROWS, LogitDifferences
from shared.errors import StartError
from shared.model import offload, row_costs
from shared.model.gguf_header import Header
from shared.model.memory import Layout
from shared.model.model_sizes import measure
from shared.model.row_costs import RowTimes
from shared.settings import options
from shared.settings.verifier_options import TargetOptions
from shared.wire.messages import Site

EQUAL = LogitDifferences(single_row=0.0, rows=0.0, neighbours=0.0, cells=0.0)
PADDED = LogitDifferences(single_row=0.2, rows=0.0, neighbours=0.0, cells=0.0)
DIFFERENT = LogitDifferences(single_row=1.0, rows=1.0, neighbours=0.0, cells=0.0)
MIXED, SAME, LAW = ("bf16", "f16"), ("bf16", "bf16"), ("f16", "f16")

PLACED = offload.place(
    measure([Header({"general.architecture": "llama"}, ())]), Layout(context=4096, parallel=8), "auto", "cpu", 1, 1
)

Types = tuple[str, str]


class Box:
    """Whatever the loader asks for: a model, a device, contexts and what was measured with each kind of cache."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, found: dict[Types, LogitDifferences], kind: str = "cpu"
    ) -> None:
        self.name = self.description = kind
        self.gpus, self.shares = [] if kind == "cpu" else [self], ()
        self.can_roll_back, self.extra_buffers = True, True
        self.open: list[Types] = []
        self.tried: list[Types] = []
        box = self

        class Context:
            def __init__(self, _: Any, **options: Any) -> None:
                self.types = options["cache_type_k"], options["cache_type_v"]
                box.open.append(self.types)

            def close(self) -> None:
                box.open.remove(self.types)

        class Cache:
            def __init__(self, *_: Any, **conditions: Any) -> None:
                self.types = conditions["cache_types"][:2]

            def load(self) -> tuple[dict[int, float], LogitDifferences]:
                box.tried.append(self.types)
                return {1: 10.0}, found[self.types]

        monkeypatch.setattr(load, "Context", Context)
        monkeypatch.setattr(load, "Cache", Cache)
        monkeypatch.setattr(load, "still_holds", lambda *_: True)

    def on_cpu(self, _: int) -> bool:
        return not self.gpus

    @property
    def vocabulary(self) -> "Box":
        return self

    def tokenize(self, _: str) -> list[int]:
        return []

    def load(self, **settings: Any) -> load.LoadedTarget:
        wanted = TargetOptions(**settings)
        one = cast(Any, self)
        return load._Loader(wanted, Path("model.gguf"), one, one, PLACED, Site(threads=1)).load()


def test_values_are_f16_on_a_cpu_that_keeps_bits_equal_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    box = Box(monkeypatch, {MIXED: EQUAL})
    assert box.load().level == "strict"
    assert box.open == box.tried == [MIXED]


def test_a_cpu_that_does_not_gets_bf16_values(monkeypatch: pytest.MonkeyPatch) -> None:
    box = Box(monkeypatch, {MIXED: DIFFERENT, SAME: EQUAL})
    assert box.load().level == "strict"
    assert box.open == [SAME]


def test_gpus_get_one_type_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    box = Box(monkeypatch, {SAME: EQUAL}, kind="gpu")
    assert box.load().level == "strict"
    assert box.open == box.tried == [SAME]


def test_other_types_are_not_tried_where_only_single_rows_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Float weights do that whatever the cache holds."""
    box = Box(monkeypatch, {MIXED: PADDED, LAW: DIFFERENT})
    assert box.load().level == "law"
    assert box.tried == [MIXED, LAW]
    assert box.load(exactness=options.Exactness.STRICT).min_rows == 2


def test_options_come_first_and_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = options.CacheType.Q8_0
    box = Box(monkeypatch, {(kind, kind): DIFFERENT})
    with pytest.raises(StartError, match="strict"):
        box.load(cache_type_k=kind, cache_type_v=kind, exactness=options.Exactness.STRICT)
    assert box.tried == [(kind, kind)]


@pytest.mark.parametrize(
    ("wanted", "rows"), [(options.Exactness.STRICT, PROBE_ROWS), (options.Exactness.LAW, FEW_PROBE_ROWS)]
)
def test_only_a_promise_of_equal_bits_is_probed_at_length(
    monkeypatch: pytest.MonkeyPatch, wanted: options.Exactness, rows: int
) -> None:
    box = Box(monkeypatch, {MIXED: EQUAL, LAW: DIFFERENT})
    probed: list[int] = []

    def measure_exactness(_: Any, __: Any, rows: int, *rest: Any) -> LogitDifferences:
        probed.append(rows)
        return EQUAL

    monkeypatch.setattr(load, "Cache", lambda *_, **__: SimpleNamespace(load=lambda: None, store=lambda *_: None))
    monkeypatch.setattr(row_costs, "time_rows", lambda *_, **__: RowTimes({1: (10.0, 10.0)}))
    monkeypatch.setattr(load, "measure_exactness", measure_exactness)
    box.load(exactness=wanted)
    assert probed == [rows]
