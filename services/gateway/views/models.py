"""The served models in the shape of each kind of client. Drafters are not listed, because requests cannot ask for one.

One entry carries the names of OpenAI, Anthropic, vLLM, llama.cpp and OpenRouter for the same facts, so that every
client finds the context's length under its name for it.
"""

from datetime import UTC, datetime
from typing import Any, Literal

from aiohttp import web

from services.gateway.http.bodies import Reply, reply
from services.gateway.http.gateway import GATEWAY
from services.gateway.models.model_info import describe
from services.gateway.models.served_model import ServedModel


class Meta(Reply):
    """llama.cpp's extra facts."""

    n_ctx: int


class ModelEntry(Reply):
    """One name of a served model.

    Lengths are tokens of one request, prompt and answer together. `root` is the model's own name. An alias also has it
    as its `parent`, as in vLLM.
    """

    id: str
    object: Literal["model"] = "model"
    root: str
    parent: str | None = None
    type: Literal["model"] = "model"
    created: int
    created_at: str
    owned_by: str = "draftmesh"
    display_name: str
    lifecycle: Literal["active"] = "active"
    exactness: str
    context_window: int
    context_length: int
    max_context_length: int
    max_model_len: int
    max_input_tokens: int
    meta: Meta


class ModelList(Reply):
    """All served models, on one page."""

    object: Literal["list"] = "list"
    data: list[ModelEntry]
    has_more: Literal[False] = False
    first_id: str | None = None
    last_id: str | None = None
    models: list[Any] | None = None


class LoadedModel(Reply):
    """One served model, for LM Studio's clients."""

    id: str
    object: Literal["model"] = "model"
    type: Literal["llm"] = "llm"
    publisher: str = "draftmesh"
    arch: str
    compatibility_type: Literal["gguf"] = "gguf"
    quantization: str
    state: Literal["loaded"] = "loaded"
    max_context_length: int
    loaded_context_length: int


class LoadedList(Reply):
    """All served models, for LM Studio's clients."""

    object: Literal["list"] = "list"
    data: list[LoadedModel]


async def list_models(request: web.Request) -> web.Response:
    """The served models, and behind them their aliases.

    Codex asks for its own catalogue here, which is empty because its entries would hold Codex's prompts.
    """
    models = await request.app[GATEWAY].directory.served()
    data = [_entry(model) for model in models] + [_entry(model, alias) for model in models for alias in model.aliases]
    first, last = (data[0].id, data[-1].id) if data else (None, None)
    catalogue: list[Any] | None = [] if "client_version" in request.query else None
    return reply(ModelList(data=data, first_id=first, last_id=last, models=catalogue))


async def get_model(request: web.Request) -> web.Response:
    """One served model, by any of its names. Raises a 404 `ApiError` that lists them, or a 503 if it is gone."""
    asked = request.match_info["id"]
    model = await request.app[GATEWAY].directory.find(asked)
    return reply(_entry(model, asked if asked in model.aliases else None))


async def list_loaded(request: web.Request) -> web.Response:
    """The served models in LM Studio's shape."""
    directory = request.app[GATEWAY].directory
    data = []
    for model in await directory.served():
        description = describe(await directory.lexicon(model.vocabulary))
        data.append(
            LoadedModel(
                id=model.name,
                arch=description.architecture,
                quantization=description.quantization,
                max_context_length=model.n_ctx,
                loaded_context_length=model.n_ctx,
            )
        )
    return reply(LoadedList(data=data))


def _entry(model: ServedModel, alias: str | None = None) -> ModelEntry:
    name = alias or model.name
    return ModelEntry(
        id=name,
        root=model.name,
        parent=model.name if alias else None,
        created=model.created,
        created_at=datetime.fromtimestamp(model.created, UTC).isoformat().replace("+00:00", "Z"),
        display_name=name,
        exactness=model.exactness,
        context_window=model.n_ctx,
        context_length=model.n_ctx,
        max_context_length=model.n_ctx,
        max_model_len=model.n_ctx,
        max_input_tokens=model.n_ctx - 1,  # the answer needs one
        meta=Meta(n_ctx=model.n_ctx),
    )
