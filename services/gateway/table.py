"""Every route of the gateway, in one table."""

from typing import Final

from services.gateway import ollama_routes, routes
from services.gateway.chat import ChatCall
from services.gateway.chat_request import ChatRequest
from services.gateway.dialect import Dialect
from services.gateway.ollama import NDJSON, OllamaEndpoint, chat_call, generate_call
from services.gateway.ollama_models import Shown
from services.gateway.ollama_request import ChatBody, GenerateBody
from services.gateway.route import Route, both, generates

ROUTES: Final[tuple[Route, ...]] = (
    # What generates
    generates(Dialect(ChatCall), ChatRequest, "OpenAI's chat completions", *both("/chat/completions")),
    Route(
        method="POST",
        paths=("/api/chat",),
        handler=OllamaEndpoint(chat_call).handle,
        summary="Ollama's chat",
        request=ChatBody,
        stream=NDJSON,
    ),
    Route(
        method="POST",
        paths=("/api/generate",),
        handler=OllamaEndpoint(generate_call).handle,
        summary="Ollama's generate",
        request=GenerateBody,
        stream=NDJSON,
    ),
    # Which models there are
    Route(method="GET", paths=both("/models"), handler=routes.list_models, summary="The served models"),
    Route(
        method="GET",
        paths=both("/models/{id:.+}"),
        handler=routes.get_model,
        summary="One served model",
        refusals=(404,),
    ),
    # What Ollama's clients ask beside
    Route(
        method="GET",
        paths=("/api/version",),
        handler=ollama_routes.version,
        summary="The release of Ollama that this is like",
        response=ollama_routes.Version,
    ),
    Route(
        method="GET",
        paths=("/api/tags",),
        handler=ollama_routes.tags,
        summary="The served models as Ollama lists them",
        response=ollama_routes.Tags,
    ),
    Route(
        method="GET",
        paths=("/api/ps",),
        handler=ollama_routes.processes,
        summary="The same models as Ollama lists what runs",
        response=ollama_routes.Processes,
    ),
    Route(
        method="POST",
        paths=("/api/show",),
        handler=ollama_routes.show,
        summary="One served model as Ollama shows it",
        request=ollama_routes.Named,
        response=Shown,
    ),
    Route(
        method="POST",
        paths=("/api/pull",),
        handler=ollama_routes.pull,
        summary="Success for a served model; nothing is downloaded",
        request=ollama_routes.Pull,
        response=ollama_routes.Progress,
        stream=NDJSON,
    ),
    Route(
        method="POST",
        paths=("/api/embed", "/api/embeddings"),
        handler=ollama_routes.refuse_embedding,
        summary="Refused: no embeddings are made",
        refusals=(400,),
    ),
    Route(
        method="POST",
        paths=("/api/create", "/api/copy", "/api/push"),
        handler=ollama_routes.refuse_change,
        summary="Refused: models come and go with verifiers",
        refusals=(400,),
    ),
    Route(
        method="DELETE",
        paths=("/api/delete",),
        handler=ollama_routes.refuse_change,
        summary="Refused: models come and go with verifiers",
        refusals=(400,),
    ),
    # How the gateway is
    Route(method="GET", paths=("/health",), handler=routes.health, summary="Whether the process lives", open=True),
    Route(
        method="GET",
        paths=("/ready",),
        handler=routes.ready,
        summary="Whether a request sent now would be served",
        refusals=(503,),
        open=True,
    ),
    Route(
        method="GET",
        paths=("/metrics",),
        handler=routes.metrics,
        summary="Prometheus' metrics",
        media="text/plain",
        open=True,
    ),
)
