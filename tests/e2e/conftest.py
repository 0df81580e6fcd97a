"""The real model as target and, re-quantised, as drafters."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from services.drafter.model_proposer import ModelProposer
from services.verifier.load import LoadedTarget, TargetSettings, load
from shared.model.llama.context import Context
from shared.model.llama.model import Model
from shared.model.llama.placement import place_target
from shared.model.llama.vocabulary import Vocabulary
from shared.settings import options
from tests.requantised import requantised


@pytest.fixture(scope="session")
def drafts(model_path: Path) -> dict[str, Path]:
    """Copies of the target in 8 and 4 bits, kept in the cache between runs."""
    return {quant: requantised(model_path, quant) for quant in ("Q8_0", "Q4_0")}


@pytest.fixture(scope="session")
def strict_target(model_path: Path) -> Iterator[LoadedTarget]:
    """The target under strict exactness, for eight requests at once."""
    loaded = load(TargetSettings(target_model=str(model_path), ctx=512, parallel=8, threads=1), place_target("auto"))
    yield loaded
    loaded.context.close()
    loaded.model.close()


@pytest.fixture(scope="session")
def law_target(model_path: Path) -> Iterator[LoadedTarget]:
    """The same under exactness in law."""
    settings = TargetSettings(
        target_model=str(model_path), ctx=512, parallel=8, threads=1, exactness=options.Exactness.LAW
    )
    loaded = load(settings, place_target("auto"))
    yield loaded
    loaded.context.close()
    loaded.model.close()


@pytest.fixture(scope="session")
def vocabulary(strict_target: LoadedTarget) -> Vocabulary:
    return strict_target.model.vocabulary


class DraftModel:
    """A loaded draft model that gives a fresh proposer per test."""

    def __init__(self, path: Path) -> None:
        self._model = Model(path)

    def proposer(self) -> tuple[ModelProposer, Context]:
        context = Context(self._model, n_ctx=512, sequences=8, unified=True, threads=1)
        return ModelProposer(context), context


@pytest.fixture(scope="session")
def draft_models(drafts: dict[str, Path]) -> dict[str, DraftModel]:
    return {quant: DraftModel(path) for quant, path in drafts.items()}
