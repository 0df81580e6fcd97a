"""The models and requests behind the gateway, in llama.cpp's shapes: a model's properties, and its verifiers' slots."""

from typing import Any, Final

from aiohttp import web
from pydantic import RootModel

from services.gateway.http.bodies import Reply, reply
from services.gateway.http.gateway import GATEWAY
from services.gateway.models.directory import serving
from shared.wire.messages import RequestStatus, Speculation, VerifierCard

# The defaults of sampling: the values of all fields that a request does not have.
_PARAMETERS: Final = {
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "n_predict": -1,
    "seed": -1,
    "stop": [],
}


class Defaults(Reply):
    """The defaults of a request."""

    n_ctx: int
    params: dict[str, Any]


class Modalities(Reply):
    """What a prompt may hold beside text."""

    vision: bool = False
    audio: bool = False


class Properties(Reply):
    """The answer of /props."""

    default_generation_settings: Defaults
    total_slots: int
    model_path: str
    model_alias: str
    chat_template: str
    bos_token: str
    eos_token: str
    modalities: Modalities = Modalities()
    build_info: str = "draftmesh"
    exactness: str
    n_vocab: int


class SlotView(Reply):
    """One slot of a verifier; only a running request has the fields after `is_processing`."""

    id: int
    verifier: str
    model: str
    n_ctx: int
    speculative: bool
    is_processing: bool
    id_task: str | None = None
    n_decoded: int | None = None
    tokens_per_round: float | None = None
    drafters: list[str] | None = None
    reason: str | None = None


class Slots(RootModel[list[SlotView]]):
    """The answer of /slots."""


async def properties(request: web.Request) -> web.Response:
    """Of the model that the query names, or of the only one. Raises a 404 `ApiError`."""
    directory = request.app[GATEWAY].directory
    model = await directory.find(request.query.get("model"))
    lexicon = await directory.lexicon(model.vocabulary)
    cards = [card for card in serving(await directory.cards()) if card.model == model.name]
    return reply(
        Properties(
            default_generation_settings=Defaults(n_ctx=model.n_ctx, params=_PARAMETERS),
            total_slots=sum(card.slots for card in cards),
            model_path=model.name,
            model_alias=model.name,
            chat_template=lexicon.template or "",
            bos_token=lexicon.bos,
            eos_token=lexicon.eos,
            exactness=model.exactness,
            n_vocab=lexicon.n_tokens,
        )
    )


async def slots(request: web.Request) -> web.Response:
    """Of every verifier, or of those of the model that the query names: busy slots first, then free ones."""
    directory = request.app[GATEWAY].directory
    asked = request.query.get("model")
    name = None if asked is None else (await directory.find(asked)).name
    cards = [card for card in serving(await directory.cards()) if name in (None, card.model)]
    found = [slot for card in cards for slot in _slots(card)]
    return reply(Slots(found))


def _slots(card: VerifierCard) -> list[SlotView]:
    """The slots as in the verifier's last heartbeat."""
    running: list[RequestStatus | None] = list(card.requests)
    free: list[RequestStatus | None] = [None] * (card.slots - len(running))
    return [_slot(card, index, request) for index, request in enumerate(running + free)]


def _slot(card: VerifierCard, index: int, request: RequestStatus | None) -> SlotView:
    return SlotView(
        id=index,
        verifier=card.id,
        model=card.model,
        n_ctx=card.n_ctx,
        speculative=card.speculation is not Speculation.OFF,
        is_processing=request is not None,
        id_task=request.request_id if request else None,
        n_decoded=request.offset if request else None,
        tokens_per_round=request.tokens_per_round if request else None,
        drafters=list(request.drafters) if request else None,
        reason=request.reason if request else None,
    )
