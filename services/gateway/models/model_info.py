"""Facts about a served model, read from its vocabulary file: architecture, size, quantisation, abilities. Pure."""

from contextlib import suppress
from dataclasses import dataclass

from gguf import LlamaFileType

from services.gateway.models.served_model import Lexicon


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """A field is empty if the file does not say. `abilities` have Ollama's names."""

    architecture: str
    size: str
    quantization: str
    abilities: tuple[str, ...]


def describe(lexicon: Lexicon) -> ModelInfo:
    """The description of this vocabulary's model."""
    tools = ("tools",) if lexicon.format.name != "plain" else ()
    thinking = ("thinking",) if lexicon.format.span is not None else ()
    return ModelInfo(
        architecture=lexicon.metadata("general.architecture") or "",
        size=lexicon.metadata("general.size_label") or "",
        quantization=_quantization(lexicon.metadata("general.file_type")),
        abilities=("completion", *tools, *thinking),
    )


def _quantization(kind: str | None) -> str:
    with suppress(ValueError, TypeError):
        return str(LlamaFileType(int(kind or "")).name).removeprefix("MOSTLY_").removeprefix("ALL_")
    return ""
