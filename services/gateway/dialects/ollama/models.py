"""The served models as Ollama lists and shows them.

Sizes on disk and in memory are 0, because only the verifiers have the weights.
"""

import hashlib
from datetime import UTC, datetime
from typing import Any, Final

from services.gateway.dialects.ollama.answer import timestamp
from services.gateway.http.bodies import Reply
from services.gateway.models.model_info import ModelInfo
from services.gateway.models.served_model import Lexicon, ServedModel

# A model is not unloaded when idle, but clients accept only dates here.
_NEVER: Final = "9999-12-31T23:59:59Z"


class Details(Reply):
    """What kind of model it is."""

    parent_model: str = ""
    format: str = "gguf"
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class TaggedModel(Reply):
    """One model of /api/tags."""

    name: str
    model: str
    modified_at: str
    size: int = 0
    digest: str
    details: Details


class RunningModel(Reply):
    """One model of /api/ps."""

    name: str
    model: str
    size: int = 0
    digest: str
    details: Details
    expires_at: str = _NEVER
    size_vram: int = 0
    context_length: int


class ShownModel(Reply):
    """The answer of /api/show."""

    modelfile: str
    parameters: str
    template: str
    details: Details
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str


def listed(model: ServedModel, description: ModelInfo, alias: str | None = None) -> TaggedModel:
    """As /api/tags lists it; requests may use its name with or without ":latest".

    An alias has the model as its parent, and the model's digest.
    """
    name = alias or model.name
    return TaggedModel(
        name=name,
        model=name,
        modified_at=_modified(model),
        digest=_digest(model),
        details=_details(description, model.name if alias else ""),
    )


def running(model: ServedModel, description: ModelInfo) -> RunningModel:
    """As /api/ps lists it."""
    return RunningModel(
        name=model.name,
        model=model.name,
        digest=_digest(model),
        details=_details(description),
        context_length=model.n_ctx,
    )


def shown(model: ServedModel, lexicon: Lexicon, description: ModelInfo) -> ShownModel:
    """As /api/show describes it. Clients read the context's length from `model_info` or from the parameters."""
    architecture = description.architecture or "llama"
    return ShownModel(
        modelfile=f"FROM {model.name}\nPARAMETER num_ctx {model.n_ctx}\n",
        parameters=f"num_ctx    {model.n_ctx}",
        template=lexicon.template or "",
        details=_details(description),
        model_info={
            "general.architecture": architecture,
            "general.basename": model.name,
            "general.size_label": description.size,
            f"{architecture}.context_length": model.n_ctx,
            f"{architecture}.vocab_size": lexicon.n_tokens,
        },
        capabilities=list(description.abilities),
        modified_at=_modified(model),
    )


def _details(description: ModelInfo, parent: str = "") -> Details:
    return Details(
        parent_model=parent,
        family=description.architecture,
        families=[description.architecture] if description.architecture else [],
        parameter_size=description.size,
        quantization_level=description.quantization,
    )


def _modified(model: ServedModel) -> str:
    return timestamp(datetime.fromtimestamp(model.created, UTC))


def _digest(model: ServedModel) -> str:
    """An identity, not a hash of the weights, which the gateway never sees."""
    return hashlib.sha256(f"{model.name}\n{model.vocabulary}\n{model.fingerprint}".encode()).hexdigest()
