"""One row of the gateway's table of routes: what the router and the OpenAPI document are both made from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from services.gateway.http.answering import Endpoint, Handler
from services.gateway.http.dialect import Dialect


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One operation under one or more paths; parts of a path in braces are as aiohttp has them.

    `request` and `response` are types that pydantic can give a JSON Schema for; None: no body, any object. `refusals`
    are statuses beside those that every route of its kind may answer with; `open`: needs no API key.
    """

    method: Literal["GET", "POST", "DELETE"]
    paths: tuple[str, ...]
    handler: Handler
    summary: str
    request: type[BaseModel] | None = None
    response: Any = None
    media: str = "application/json"
    others: tuple[str, ...] = ()  # further media types, by what is asked for
    stream: str | None = None  # the media type of its stream, where it may answer with one
    query: Mapping[str, str] = field(default_factory=dict)  # parameter: what it does
    nothing: str = ""  # when it answers 204, if ever
    refusals: tuple[int, ...] = ()
    open: bool = False
    submits: bool = False  # puts work before the verifiers
    refused: bool = False  # answers with nothing but refusals


def generates(
    dialect: Dialect,
    request: type[BaseModel],
    summary: str,
    *paths: str,
    response: Any = None,
    endpoint: type[Endpoint] = Endpoint,
) -> Route:
    """The POST route of a dialect."""
    return Route(
        method="POST",
        paths=paths,
        handler=endpoint(dialect).handle,
        summary=summary,
        request=request,
        response=response,
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
    """The path with and without /v1: clients differ in what they take for the base address."""
    return f"/v1{path}", path
