"""What `--exactness auto` says of a device is true: bits are equal under strict, and are not where it says law."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from shared.law.sampling import Logits
from shared.model.llama.vocabulary import Vocabulary
from shared.settings.options import Exactness
from tests.devices.conftest import Targets
from tests.devices.far import FarTarget, Refused, Run
from tests.devices.places import CPU, PLACES, VULKAN, Place

# Not the text of the probe.
TEXT = "In winter the canal froze, and for two weeks nobody in the village paid for a crossing."


def computed(target: FarTarget, tokens: list[int], widths: list[int], beside: bool = False) -> list[Logits]:
    """The logits of all tokens, decoded in pieces of `widths`, if `beside` with another sequence in each decode."""
    target.forget()
    found: list[Logits] = []
    for index, width in enumerate(widths):
        other = [Run(1, 2 * index, tokens[:2])] if beside else []
        found += target.decode(Run(0, len(found), tokens[len(found) : len(found) + width]), *other)
    target.forget()
    return found


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_the_level_is_what_bits_say(place: Place, targets: Targets, vocabulary: Vocabulary) -> None:
    target = targets(place)
    tokens = vocabulary.tokenize(TEXT)[:72]
    whole = computed(target, tokens, [72])
    ways = [
        computed(target, tokens, [66] + [1] * 6),
        computed(target, tokens, [2] * 36),
        computed(target, tokens, [60, 5, 4, 3]),
        computed(target, tokens, [36, 36], beside=True),
    ]
    differences = [float(np.abs(np.stack(way) - np.stack(whole)).max()) for way in ways]
    assert target.facts.device == place.device
    if target.facts.level == "strict":
        assert differences == [0.0] * len(ways)
        assert target.facts.noise == 0.0
    else:
        assert target.facts.level == "law"
        assert max(differences) > 0.0
        assert target.facts.noise > 0.0


def test_each_device_is_measured_by_itself(variables: dict[str, str], models: dict[str, Path]) -> None:
    """The same file on another device finds nothing measured yet, and what it measures is kept apart."""
    folder = Path(variables["DRAFTMESH_CACHE"]) / "calibration"
    kept = [set(folder.glob("*.json"))]
    for place in (CPU, VULKAN, CPU):
        FarTarget(variables, place.settings(models["draft"], Exactness.LAW), place.device).close()
        kept.append(set(folder.glob("*.json")))
    assert [len(after - before) for before, after in pairwise(kept)] == [1, 1, 0]


def test_strict_is_refused_where_it_cannot_hold(
    targets: Targets, variables: dict[str, str], models: dict[str, Path]
) -> None:
    assert targets(VULKAN).facts.level == "law"
    with pytest.raises(Refused, match=r"^--exactness strict: .*logits vary by up to"):
        FarTarget(variables, VULKAN.settings(models[VULKAN.name], Exactness.STRICT), VULKAN.device)


def test_this_cpu_is_strict_with_quantised_weights(targets: Targets) -> None:
    """Or the comparisons of answers below would be worth less than they look."""
    assert targets(CPU).facts.level == "strict"
