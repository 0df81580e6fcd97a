"""Every route of the gateway, in one table."""

from typing import Final

from services.gateway.dialects.chat.answer import completions_exchange
from services.gateway.dialects.chat.request import ChatRequest
from services.gateway.dialects.completions.answer import CompletionAnswer
from services.gateway.dialects.completions.request import CompletionRequest, parse_completion
from services.gateway.dialects.counting import token_count
from services.gateway.dialects.messages.answer import counted_exchange, messages_exchange
from services.gateway.dialects.messages.request import MessagesPrompt, MessagesRequest
from services.gateway.dialects.ollama import routes as ollama_routes
from services.gateway.dialects.ollama.exchange import NDJSON, chat_exchange, generate_exchange, ollama_endpoint
from services.gateway.dialects.ollama.models import ShownModel
from services.gateway.dialects.ollama.request import ChatBody, GenerateBody
from services.gateway.dialects.responses import routes as response_routes
from services.gateway.dialects.responses.exchange import ResponsesExchange
from services.gateway.dialects.responses.recording import ResponsesEndpoint
from services.gateway.dialects.responses.request import ResponsesRequest
from services.gateway.http.dialect import Dialect, StatelessExchange
from services.gateway.http.route import Route, both, generates, get, post
from services.gateway.page import routes as page_routes
from services.gateway.views import health, models, server, status, tokens
from shared.fleet.fleet_values import FleetStatus

CHAT: Final = Dialect(completions_exchange)
COMPLETIONS: Final = Dialect(lambda data: StatelessExchange(parse_completion(data), CompletionAnswer))
MESSAGES: Final = Dialect(messages_exchange)

_OLLAMA_STREAM: Final[dict[str, object]] = {"stream": NDJSON, "submits": True}
_GONE: Final[dict[str, object]] = {"refusals": (400,), "refused": True}
_MODEL: Final = {"model": "Which model, if several are served"}

ROUTES: Final[tuple[Route, ...]] = (
    # What generates
    generates(CHAT, ChatRequest, "OpenAI's chat completions", *both("/chat/completions")),
    generates(COMPLETIONS, CompletionRequest, "OpenAI's completions of a text", *both("/completions")),
    generates(
        Dialect(ResponsesExchange),
        ResponsesRequest,
        "OpenAI's responses",
        *both("/responses"),
        endpoint=ResponsesEndpoint,
    ),
    generates(MESSAGES, MessagesRequest, "Anthropic's Messages API", *both("/messages")),
    post(ollama_endpoint(chat_exchange), ChatBody, "Ollama's chat", "/api/chat", **_OLLAMA_STREAM),
    post(ollama_endpoint(generate_exchange), GenerateBody, "Ollama's generate", "/api/generate", **_OLLAMA_STREAM),
    # What prompts would take, and stored responses
    post(
        token_count(Dialect(counted_exchange)),
        MessagesPrompt,
        "How many tokens the prompt of a Messages request has",
        *both("/messages/count_tokens"),
    ),
    post(
        token_count(Dialect(ResponsesExchange), object="response.input_tokens"),
        ResponsesRequest,
        "How many tokens the prompt of a Responses request has",
        *both("/responses/input_tokens"),
    ),
    get(
        response_routes.get_response,
        "A stored or background response",
        *both("/responses/{id}"),
        query={
            "stream": "true: stream the events of a background response",
            "starting_after": "Start after this sequence_number; the header Last-Event-ID does the same",
        },
        stream="text/event-stream",
        nothing="No event follows the one to start after",
        refusals=(400, 404),
    ),
    post(
        response_routes.cancel_response,
        None,
        "Cancel a background response",
        *both("/responses/{id}/cancel"),
        refusals=(400, 404),
    ),
    Route(
        method="DELETE",
        paths=both("/responses/{id}"),
        handler=response_routes.delete_response,
        summary="Delete a response; a running one ends",
        response=response_routes.Deleted,
        refusals=(404,),
    ),
    # Which models there are
    get(
        models.list_models,
        "The served models",
        *both("/models"),
        response=models.ModelList,
        query={"client_version": "Codex's; adds its catalogue, which is empty"},
    ),
    get(
        models.get_model,
        "One served model",
        *both("/models/{id:.+}"),
        response=models.ModelEntry,
        refusals=(404,),
    ),
    get(
        models.list_loaded,
        "The served models, for LM Studio's clients",
        "/api/v0/models",
        response=models.LoadedList,
    ),
    # Tokens and prompts
    post(
        tokens.tokenize,
        tokens.Tokenize,
        "Text or a conversation to token ids",
        "/tokenize",
        "/v1/tokenize",
        response=tokens.Tokens,
    ),
    post(
        tokens.detokenize,
        tokens.Detokenize,
        "Token ids to text",
        "/detokenize",
        "/v1/detokenize",
        response=tokens.DetokenizedText,
    ),
    post(
        tokens.apply_template,
        ChatRequest,
        "The prompt of a chat request, as text",
        "/apply-template",
        "/v1/apply-template",
        response=tokens.Prompt,
    ),
    # What Ollama's clients ask beside
    get(
        ollama_routes.version,
        "The release of Ollama that these routes follow",
        "/api/version",
        response=ollama_routes.Version,
    ),
    get(ollama_routes.tags, "The served models, for Ollama's clients", "/api/tags", response=ollama_routes.Tags),
    get(ollama_routes.processes, "The served models, as running ones", "/api/ps", response=ollama_routes.Processes),
    post(ollama_routes.show, ollama_routes.NamedModel, "One served model", "/api/show", response=ShownModel),
    post(
        ollama_routes.pull,
        ollama_routes.Pull,
        "Success for a served model; nothing is downloaded",
        "/api/pull",
        response=ollama_routes.PullProgress,
        stream=NDJSON,
    ),
    post(
        ollama_routes.refuse_embedding,
        None,
        "Refused: this gateway makes no embeddings",
        "/api/embed",
        "/api/embeddings",
        **_GONE,
    ),
    post(
        ollama_routes.refuse_change,
        None,
        "Refused: verifiers load the models",
        "/api/create",
        "/api/copy",
        "/api/push",
        **_GONE,
    ),
    Route(
        method="DELETE",
        paths=("/api/delete",),
        handler=ollama_routes.refuse_change,
        summary="Refused: verifiers load the models",
        refusals=(400,),
        refused=True,
    ),
    # How the gateway is
    get(
        page_routes.root,
        "A line that says what this server is; a page for browsers",
        "/",
        media="text/plain",
        others=("text/html",),
        open=True,
    ),
    get(
        page_routes.asset,
        "A file of the page",
        "/page/{version}/{name}",
        media="text/javascript",
        others=("text/css", "image/svg+xml"),
        refusals=(404,),
        open=True,
    ),
    get(
        status.status,
        "The fleet: every process, what each drafter adds, and the running requests",
        "/status",
        response=FleetStatus,
    ),
    get(
        status.events,
        "The same as server-sent events, one a second, after a first one with the last minutes' totals",
        "/status/events",
        media="text/event-stream",
    ),
    get(health.live, "Whether the gateway process works", "/livez", "/health", refusals=(503,), open=True),
    get(health.ready, "Whether a request sent now would be served", "/readyz", "/ready", refusals=(503,), open=True),
    get(health.progress, "Whether running requests make progress", "/health/progress", refusals=(503,), open=True),
    get(health.metrics, "Prometheus' metrics", "/metrics", media="text/plain", open=True),
    get(
        server.properties,
        "A model's context, slots, template and exactness",
        "/props",
        response=server.Properties,
        query=_MODEL,
        refusals=(404,),
    ),
    get(
        server.slots,
        "What runs on the verifiers",
        "/slots",
        response=server.Slots,
        query=_MODEL,
        refusals=(404,),
    ),
    get(health.openapi, "This document", "/openapi.json", open=True),
)
