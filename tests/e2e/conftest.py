"""The real model as target and, re-quantised, as drafters."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from services.drafter.model_proposer import ModelProposer
from services.verifier.load import LoadedTarget, load
from shared.model.llama.context import Context
from shared.model.llama.model import Model
from shared.model.llama.placement import place_target
from shared.model.llama.vocabulary import Vocabulary
from shared.settings import options
from shared.settings.verifier_options import TargetOptions, VerifierOptions
from tests.requantised import requantised


@pytest.fixture(scope="session")
def drafts(model_path: Path) -> dict[str, Path]:
    """Copies of the target in 8 and 4 bits, kept in the cache between runs."""
    return {quant: requantised(model_path, quant) for quant in ("Q8_0", "Q4_0")}


def loaded(path: Path, exactness: options.Exactness) -> Iterator[LoadedTarget]:
    target = TargetOptions(ctx=512, parallel=8, threads=1, exactness=exactness)
    found = load(VerifierOptions(target_model=str(path), target=target), place_target("auto"))
    yield found
    found.context.close()
    found.model.close()


@pytest.fixture(scope="session")
def strict_target(model_path: Path) -> Iterator[LoadedTarget]:
    """The target under strict exactness, for eight requests at once."""
    yield from loaded(model_path, options.Exactness.AUTO)


@pytest.fixture(scope="session")
def law_target(model_path: Path) -> Iterator[LoadedTarget]:
    """The same under exactness in law."""
    yield from loaded(model_path, options.Exactness.LAW)


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
