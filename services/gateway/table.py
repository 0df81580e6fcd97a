"""Every route of the gateway, in one table."""

from typing import Final

from services.gateway import routes
from services.gateway.chat import ChatCall
from services.gateway.chat_request import ChatRequest
from services.gateway.counting import TokenCount
from services.gateway.dialect import Dialect
from services.gateway.messages import MessagesCall
from services.gateway.messages_request import MessagesRequest
from services.gateway.route import Route, both, generates

ROUTES: Final[tuple[Route, ...]] = (
    # What generates
    generates(Dialect(ChatCall), ChatRequest, "OpenAI's chat completions", *both("/chat/completions")),
    generates(Dialect(MessagesCall), MessagesRequest, "Anthropic's Messages API", *both("/messages")),
    Route(
        method="POST",
        paths=both("/messages/count_tokens"),
        handler=TokenCount(Dialect(MessagesCall)).handle,
        summary="How many tokens the prompt of a Messages request has",
        request=MessagesRequest,
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
    Route(
        method="GET",
        paths=("/",),
        handler=routes.root,
        summary="What this is; clients ask it whether a server is there",
        media="text/plain",
        open=True,
    ),
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
