"""Every route of the gateway, in one table."""

from typing import Final

from services.gateway import responses, routes
from services.gateway.chat import ChatCall
from services.gateway.chat_request import ChatRequest
from services.gateway.dialect import Dialect
from services.gateway.responses_request import ResponsesRequest
from services.gateway.route import Route, both, generates

ROUTES: Final[tuple[Route, ...]] = (
    # What generates
    generates(Dialect(ChatCall), ChatRequest, "OpenAI's chat completions", *both("/chat/completions")),
    generates(Dialect(responses.ResponsesCall), ResponsesRequest, "OpenAI's responses", *both("/responses")),
    # Stored responses, and what a request would take
    Route(
        method="POST",
        paths=both("/responses/input_tokens"),
        handler=responses.count_input,
        summary="How many tokens a response's input has",
        request=ResponsesRequest,
    ),
    Route(
        method="GET",
        paths=both("/responses/{id}"),
        handler=responses.get_response,
        summary="A stored response",
        refusals=(404,),
    ),
    Route(
        method="DELETE",
        paths=both("/responses/{id}"),
        handler=responses.delete_response,
        summary="Forget a stored response",
        refusals=(404,),
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
