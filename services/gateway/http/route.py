"""One row of the gateway's table of routes: the source of both the router and the OpenAPI document."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from services.gateway.http.answering import Endpoint, Handler
from services.gateway.http.dialect import Dialect


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One operation under one or more paths; parts of a path in braces have aiohttp's syntax.

    `request` and `response` are types with a JSON Schema, of pydantic or msgspec; None: no body, any object. `refusals`
    are the statuses beyond those of every route of its kind; `open`: needs no API key.
    """

    method: Literal["GET", "POST", "DELETE"]
    paths: tuple[str, ...]
    handler: Handler
    summary: str
    request: type[BaseModel] | None = None
    response: Any = None
    media: str = "application/json"
    others: tuple[str, ...] = ()  # further media types, which the request can ask for
    stream: str | None = None  # the media type of its stream, if it can answer with one
    query: Mapping[str, str] = field(default_factory=dict)  # parameter: what it does
    nothing: str = ""  # when it answers 204, if ever
    refusals: tuple[int, ...] = ()
    open: bool = False
    submits: bool = False  # submits work to the verifiers
    refused: bool = False  # refuses every request


def generates(
    dialect: Dialect,
    request: type[BaseModel],
    summary: str,
    *paths: str,
    endpoint: type[Endpoint] = Endpoint,
) -> Route:
    """The POST route of a dialect."""
    return Route(
        method="POST",
        paths=paths,
        handler=endpoint(dialect).handle,
        summary=summary,
        request=request,
        stream=dialect.content_type.partition(";")[0],
        submits=True,
    )


def get(handler: Handler, summary: str, *paths: str, response: Any = None, **more: Any) -> Route:
    """A GET route; `more` are further fields of the row."""
    return Route(method="GET", paths=paths, handler=handler, summary=summary, response=response, **more)


def post(
    handler: Handler, request: type[BaseModel] | None, summary: str, *paths: str, response: Any = None, **more: Any
) -> Route:
    """A POST route that generates nothing; `more` are further fields of the row."""
    return Route(
        method="POST", paths=paths, handler=handler, summary=summary, request=request, response=response, **more
    )


def both(path: str) -> tuple[str, str]:
    """The path with and without /v1: clients differ in their base address."""
    return f"/v1{path}", path
