"""The toy target as a verifier takes it: loaded, measured, under strict exactness."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from services.verifier.load import LoadedTarget
from shared.law.speedup import RowCosts
from tests.toys import EOG, VOCABULARY, ToyTarget


def toy(path: Path, took: Callable[[int], object] = lambda rows: None, **options: Any) -> LoadedTarget:
    """A toy target that looks loaded; its vocabulary file is the real model's."""
    vocabulary = SimpleNamespace(eog=(EOG,), texts=lambda: [b"%d" % token for token in range(VOCABULARY)])
    return LoadedTarget(
        model=cast(Any, SimpleNamespace(path=path, vocabulary=vocabulary)),
        context=cast(Any, ToyTarget(took=took, n_ctx=600, **options)),
        costs=RowCosts({1: 1.0, 2: 1.01, 8: 1.07, 64: 2.0}),
        device="cpu",
        level="strict",
        note="a toy",
        noise=0.0,
        min_rows=1,
    )
