"""Ollama's routes beside generation: which models are served and how, and clear refusals of requests to change that."""

from typing import Final

from aiohttp import web
from pydantic import Field

from services.gateway.dialects.ollama.exchange import NDJSON
from services.gateway.dialects.ollama.models import RunningModel, TaggedModel, listed, running, shown
from services.gateway.errors import ApiError, invalid
from services.gateway.http.answering import read_body
from services.gateway.http.bodies import Given, Reply, checked, parse_object, reply
from services.gateway.http.gateway import GATEWAY
from services.gateway.models.model_info import ModelInfo, describe
from services.gateway.models.served_model import ServedModel

# Clients ask for a minimum version: Codex wants 0.13.4, and the editors that we know want less.
VERSION: Final = "0.20.0"


class Version(Reply):
    """The release of Ollama that the routes under /api follow."""

    version: str = VERSION


class Tags(Reply):
    """The served models."""

    models: list[TaggedModel]


class Processes(Reply):
    """The models that run."""

    models: list[RunningModel]


class NamedModel(Given):
    """A request about one model, under either name of the field."""

    model: str | None = Field(None, description="The model's name, with or without ':latest'")
    name: str | None = Field(None, description="The older name of 'model'")

    @property
    def asked(self) -> str:
        """Raises a 400 `ApiError` if there is no name."""
        name = self.model or self.name
        if not name:
            raise invalid("model", "'model' is required.", "missing_required_parameter")
        return name


class Pull(NamedModel):
    """The body of POST /api/pull."""

    stream: bool = True


class PullProgress(Reply):
    """How far a pull is."""

    status: str


async def version(_: web.Request) -> web.Response:
    """The release of Ollama that these routes follow."""
    return reply(Version())


async def tags(request: web.Request) -> web.Response:
    """The served models, and behind them their aliases."""
    served = await _served(request)
    models = [listed(model, description) for model, description in served]
    aliases = [listed(model, description, alias) for model, description in served for alias in model.aliases]
    return reply(Tags(models=models + aliases))


async def processes(request: web.Request) -> web.Response:
    """The served models, because each of them is running."""
    return reply(Processes(models=[running(model, description) for model, description in await _served(request)]))


async def show(request: web.Request) -> web.Response:
    """One served model."""
    asked = checked(NamedModel, parse_object(await read_body(request))).asked
    directory = request.app[GATEWAY].directory
    model = await directory.find(asked)
    lexicon = await directory.lexicon(model.vocabulary)
    return reply(shown(model, lexicon, describe(lexicon)))


async def pull(request: web.Request) -> web.Response:
    """Success for a served model, as Ollama answers for one that it has; the gateway never downloads."""
    body = checked(Pull, parse_object(await read_body(request)))
    try:
        await request.app[GATEWAY].directory.find(body.asked)
    except ApiError as error:
        if error.status != 404:
            raise
        raise ApiError(
            404, f"{error.message} Verifiers load the models; this gateway pulls none.", code=error.code
        ) from None
    steps = ("pulling manifest", "success") if body.stream else ("success",)
    lines = "".join(f"{PullProgress(status=step).model_dump_json()}\n" for step in steps)
    return web.Response(text=lines, content_type=NDJSON if body.stream else "application/json")


async def refuse_embedding(_: web.Request) -> web.Response:
    """Raises the 400."""
    raise ApiError(400, "This gateway generates text and makes no embeddings.", code="unsupported")


async def refuse_change(_: web.Request) -> web.Response:
    """Raises the 400."""
    raise ApiError(400, "This gateway cannot change models: verifiers load them.", code="unsupported")


async def _served(request: web.Request) -> list[tuple[ServedModel, ModelInfo]]:
    directory = request.app[GATEWAY].directory
    return [(model, describe(await directory.lexicon(model.vocabulary))) for model in await directory.served()]
