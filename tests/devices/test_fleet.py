"""Target here and drafter there, and the other way round: devices by name, layers where they were put, answers kept."""

import asyncio
import re
from pathlib import Path

import pytest
import redis

from shared.model.llama.vocabulary import Vocabulary
from shared.wire.messages import Finish
from tests.devices import fleet
from tests.devices.conftest import Targets
from tests.devices.driver import DEVICE
from tests.devices.fleet import DRAFT_DEVICES, LAWS, TOKENS, Asked, Record
from tests.devices.judge import shortfalls
from tests.devices.places import LAYERS, PLACES, Place

BY_PLACE = pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
BY_LAW = pytest.mark.parametrize("law", range(len(LAWS)), ids=["greedy", "sampled"])


@pytest.fixture(scope="module")
def prompt(vocabulary: Vocabulary) -> list[int]:
    return vocabulary.tokenize("<|im_start|>user\nWhich way to the harbour?<|im_end|>\n<|im_start|>assistant\n")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the fleet's processes said: verifiers by model, drafters by device."""
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def record(
    targets: Targets,
    valkey_url: str,
    variables: dict[str, str],
    models: dict[str, Path],
    prompt: list[int],
    logs: Path,
) -> Record:
    for place in PLACES:
        targets(place)  # measures it, so that the fleet is there soon
    client = redis.Redis.from_url(valkey_url)
    client.flushall()
    client.close()
    return asyncio.run(fleet.record(valkey_url, variables, models, prompt, logs))


def offloaded(log: Path) -> set[str]:
    """What llama.cpp says of a model's layers on a GPU; nothing where none lies there."""
    return set(re.findall(r"offloaded ([1-9]\d*/\d+) layers to GPU", log.read_text()))


@BY_PLACE
def test_a_target_lies_where_it_was_put(place: Place, record: Record, logs: Path) -> None:
    assert record.verifiers[place.name].device == place.device
    expected = {f"{place.layers}/{LAYERS}"} if place.layers else set()
    assert offloaded(logs / place.name) == expected


@pytest.mark.parametrize("device", DRAFT_DEVICES)
def test_a_drafter_lies_where_it_was_put(device: str, record: Record, logs: Path) -> None:
    assert record.drafters[device].device == device
    assert offloaded(logs / device) == ({f"{LAYERS - 1}/{LAYERS - 1}"} if device == DEVICE else set())


@BY_PLACE
def test_a_verifier_says_what_its_target_was_found_to_be(place: Place, record: Record, targets: Targets) -> None:
    card = record.verifiers[place.name]
    assert (card.exactness, card.exactness_note) == (targets(place).facts.level, targets(place).facts.note)


@BY_LAW
@pytest.mark.parametrize("device", ["", *DRAFT_DEVICES])
@BY_PLACE
def test_drafts_change_nothing(
    place: Place, device: str, law: int, record: Record, prompt: list[int], targets: Targets
) -> None:
    """Token for token where the target is strict. Elsewhere each token is what the target draws, but for noise."""
    answer = record.answers[Asked(place, device, law)]
    assert len(answer.tokens) == TOKENS
    assert answer.chunks[-1].finish is Finish.LENGTH
    target = targets(place)
    behind = shortfalls(target, prompt, answer.tokens, LAWS[law])
    if target.facts.level == "strict":
        assert behind == [0.0] * TOKENS
        assert answer.tokens == record.answers[Asked(place, "", law)].tokens
    else:
        assert max(behind) <= 2 * target.facts.noise  # both scores move, each by up to the noise
