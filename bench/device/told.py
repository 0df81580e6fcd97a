"""What a part of a check is told: wishes, what earlier parts found, and how long it may take."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.device.unpacking import VOCABULARY
from services.launcher.models.pair import default_model


@dataclass(frozen=True, slots=True)
class Told:
    """`wishes` are the check's options, `figures` of earlier parts by name, `seconds` the time that is left."""

    wishes: dict[str, Any]
    figures: dict[str, dict[str, Any]]
    seconds: float

    @property
    def target(self) -> str:
        """The device of the target, as our options take it."""
        return str(self.figures["devices"]["target"])

    @property
    def draft(self) -> str:
        return str(self.figures["devices"]["draft"])

    @property
    def folder(self) -> Path:
        """Where the models of this check are."""
        folder = Path(self.wishes["home"]) / "models"
        folder.mkdir(exist_ok=True)
        return folder

    @property
    def vocabulary(self) -> Path:
        """A file to take the vocabulary from: the kit's, or the default model."""
        kit = self.wishes["kit"]
        return Path(kit) / VOCABULARY if kit else default_model()

    @property
    def target_model(self) -> Path:
        return self.folder / "target.gguf"

    @property
    def draft_model(self) -> Path:
        return self.folder / "draft.gguf"
