"""Where the target lies in these tests."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.settings.options import Exactness
from shared.settings.verifier_options import TargetOptions, VerifierOptions
from tests.devices.driver import DEVICE

CTX: Final = 256


@dataclass(frozen=True, slots=True)
class Place:
    """A name that is also the model's, a device, and how many of the three layers lie there."""

    name: str
    device: str
    layers: int  # the output counts as one

    def options(self) -> list[str]:
        """Of a verifier at this place."""
        return ["--target-device", self.device, "--gpu-layers", str(self.layers), "--ctx", str(CTX), *_SMALL]

    def settings(self, model: Path, exactness: Exactness = Exactness.AUTO) -> VerifierOptions:
        """The same for a target without a verifier."""
        target = TargetOptions(gpu_layers=str(self.layers), ctx=CTX, parallel=PARALLEL, threads=1, exactness=exactness)
        return VerifierOptions(target_model=str(model), target=target)


LAYERS: Final = 3
PARALLEL: Final = 2
_SMALL: Final = ("--parallel", str(PARALLEL), "--threads", "1")
VULKAN: Final = Place("all-there", DEVICE, LAYERS)
SPLIT: Final = Place("split", DEVICE, 1)
CPU: Final = Place("none-there", "cpu", 0)
PLACES: Final = (VULKAN, SPLIT, CPU)
