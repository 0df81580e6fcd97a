"""The device, models for it, targets to ask, and a fleet whose answers the tests look at."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shared.model.llama.model import Model
from shared.model.llama.vocabulary import Vocabulary
from tests import tiny_models
from tests.devices import driver
from tests.devices.far import FarTarget
from tests.devices.places import PLACES, Place

Targets = Callable[[Place], FarTarget]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test of all waits until shaders are compiled."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of processes that see the device. Without it tests are skipped, or fail where they are required."""
    found = driver.environment(tmp_path_factory.mktemp("measured"))
    missing = driver.lacking(found)
    if missing and os.environ.get(driver.REQUIRED):
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)
    return found


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A target of its own name for each place, all with the same weights, and as `draft` its first layer alone."""
    folder = tmp_path_factory.mktemp("models")
    targets = {place.name: tiny_models.write(folder / f"{place.name}.gguf", heads=2) for place in PLACES}
    return targets | {"draft": tiny_models.write(folder / "draft.gguf", layers=1, heads=2)}


@pytest.fixture(scope="session")
def vocabulary(models: dict[str, Path]) -> Iterator[Vocabulary]:
    model = Model(models["draft"], vocab_only=True)
    yield model.vocabulary
    model.close()


@pytest.fixture(scope="session")
def targets(variables: dict[str, str], models: dict[str, Path]) -> Iterator[Targets]:
    """The target at a place, loaded as a verifier loads it; the first start there measures it."""
    loaded: dict[str, FarTarget] = {}

    def target(place: Place) -> FarTarget:
        if place.name not in loaded:
            loaded[place.name] = FarTarget(variables, place.settings(models[place.name]), place.device)
        return loaded[place.name]

    yield target
    for one in loaded.values():
        one.close()
