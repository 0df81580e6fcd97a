"""The real model as target and, re-quantised, as drafters; whole, and with its first layers only.

A fraction of the layers is enough for all that holds for any weights: answers that are compared with those of a plain
loop over the same file. The whole model is for what needs answers that make sense or end, and for one proof of each.
"""

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
from tests.shallow import shallow


@pytest.fixture(scope="session")
def shallow_path(model_path: Path) -> Path:
    """The real model with 6 of its 30 layers."""
    return shallow(model_path, layers=6)


@pytest.fixture(scope="session")
def drafts(shallow_path: Path) -> dict[str, Path]:
    """Copies of the shallow model in 8 and 4 bits, kept in the cache between runs."""
    return {quant: requantised(shallow_path, quant) for quant in ("Q8_0", "Q4_0")}


def loaded(path: Path, exactness: options.Exactness) -> Iterator[LoadedTarget]:
    target = TargetOptions(ctx=512, parallel=8, threads=1, exactness=exactness)
    found = load(VerifierOptions(target_model=str(path), target=target), place_target("auto"))
    yield found
    found.context.close()
    found.model.close()


@pytest.fixture(scope="session")
def whole_target(model_path: Path) -> Iterator[LoadedTarget]:
    """The whole model under strict exactness, for eight requests at once."""
    yield from loaded(model_path, options.Exactness.AUTO)


@pytest.fixture(scope="session")
def strict_target(shallow_path: Path) -> Iterator[LoadedTarget]:
    """The shallow model under strict exactness, for eight requests at once."""
    yield from loaded(shallow_path, options.Exactness.AUTO)


@pytest.fixture(scope="session")
def law_target(shallow_path: Path) -> Iterator[LoadedTarget]:
    """The same under exactness in law."""
    yield from loaded(shallow_path, options.Exactness.LAW)


@pytest.fixture(scope="session")
def vocabulary(model_path: Path) -> Iterator[Vocabulary]:
    model = Model(model_path, vocab_only=True)
    yield model.vocabulary
    model.close()


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
