"""The OpenAPI 3.1 document of a table of routes: every path, what it takes and answers, errors and keys. Pure.

Request and response schemas come from the types that check and build the bodies, so they cannot drift apart from the
code. Spec: https://spec.openapis.org/oas/v3.1.0
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaValue, models_json_schema

from services.gateway.http.error_shapes import Family, family, statuses
from services.gateway.http.route import Route

_REF: Final = "#/components/schemas/"
_PARAMETER: Final = re.compile(r"{(\w+)(?::[^{}]*)?}")
MEANINGS: Final = {
    400: "The request is not valid; the message names the field",
    401: "No valid API key",
    403: "A web page of another site or a Host that is not local, and the gateway has no API keys",
    404: "There is no such model or object",
    408: "The body did not arrive in time",
    409: "The request with this Idempotency-Key still runs; try again after Retry-After",
    413: "The body is too large",
    415: "The body is compressed in a way that the gateway does not know",
    422: "This Idempotency-Key belongs to another request",
    429: "This API key has the most requests that it may have; try again after Retry-After",
    499: "The request was cancelled",
    500: "Generation failed",
    503: "The gateway has no room, no verifier or no Redis now; try again after Retry-After",
    504: "The request's deadline passed",
    529: "The gateway has no room, no verifier or no Redis now; try again after Retry-After",
}
_JSON: Final = "application/json"
_TEXT: Final[JsonSchemaValue] = {"type": "string"}
_SECURITY: Final = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


def document(routes: Sequence[Route], version: str) -> dict[str, Any]:
    """The document as JSON-ready values. `version` is the gateway's."""
    types = [kind for route in routes for kind in (route.request, route.response) if kind is not None]
    references, definitions = _schemas(types)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        for path in route.paths:
            paths.setdefault(plain(path), {})[route.method.lower()] = _operation(route, plain(path), references)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "draftmesh",
            "version": version,
            "description": "A language model behind widely used HTTP APIs. Fields that are null count as "
            "absent; unknown fields are ignored. Clients need an API key only if the gateway has any.",
        },
        "security": [*({name: []} for name in _SECURITY), {}],
        "paths": paths,
        "components": {"schemas": {**definitions, **_ERRORS}, "securitySchemes": _SECURITY},
    }


def plain(path: str) -> str:
    """A path without aiohttp's expressions for its parameters."""
    return _PARAMETER.sub(r"{\1}", path)


def _schemas(types: Iterable[type[BaseModel | msgspec.Struct]]) -> tuple[dict[object, JsonSchemaValue], dict[str, Any]]:
    """A reference to each type's schema, and all schemas by name."""
    kinds = list(dict.fromkeys(types))
    structs = [kind for kind in kinds if issubclass(kind, msgspec.Struct)]
    models = [kind for kind in kinds if issubclass(kind, BaseModel)]
    of_models, more = models_json_schema([(kind, "validation") for kind in models], ref_template=_REF + "{model}")
    of_structs, definitions = msgspec.json.schema_components(structs, ref_template=_REF + "{name}")
    references = {kind: schema for (kind, _), schema in of_models.items()}
    return references | dict(zip(structs, of_structs, strict=True)), more.get("$defs", {}) | definitions


def _operation(route: Route, path: str, references: dict[object, JsonSchemaValue]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": "_".join([route.method.lower(), *re.findall(r"\w+", path)]),
        "responses": _responses(route, path, references),
    }
    inside = [_parameter(name, "path", "") for name in _PARAMETER.findall(path)]
    parameters = [*inside, *(_parameter(name, "query", purpose) for name, purpose in route.query.items())]
    if parameters:
        operation["parameters"] = parameters
    if route.request is not None:
        operation["requestBody"] = {"required": True, "content": {_JSON: {"schema": references[route.request]}}}
    if route.open:
        operation["security"] = []
    return operation


def _parameter(name: str, place: str, purpose: str) -> dict[str, Any]:
    common = {"name": name, "in": place, "required": place == "path", "schema": _TEXT}
    return {**common, "description": purpose} if purpose else common


def _responses(route: Route, path: str, references: dict[object, JsonSchemaValue]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    if not route.refused:
        whole = {"type": "object"} if route.response is None else references[route.response]
        content: dict[str, Any] = {route.media: {"schema": whole if route.media == _JSON else _TEXT}}
        content |= {media: {"schema": _TEXT} for media in route.others}
        if route.stream is not None:
            content[route.stream] = {}  # before OpenAPI 3.2 there is no schema for one event of many
        responses["200"] = {"description": "The answer", "content": content}
    if route.nothing:
        responses["204"] = {"description": route.nothing}
    kind = family(path)
    for status in sorted(statuses(kind, _refusals(route))):
        content = {_JSON: {"schema": {"$ref": f"{_REF}{_NAMES[kind]}"}}}
        responses[str(status)] = {"description": MEANINGS[status], "content": content}
    return responses


def _refusals(route: Route) -> set[int]:
    found = set(route.refusals)
    if not route.open:
        found |= {401, 403, 503}
    if route.request is not None:
        found |= {400, 404, 408, 413, 415}
    if route.submits:
        found |= {409, 422, 429, 499, 500, 504}
    return found


_NAMES: Final[dict[Family, str]] = {"openai": "Error", "anthropic": "AnthropicError", "ollama": "OllamaError"}
_WORD: Final = {"type": ["string", "null"]}
_ERRORS: Final[dict[str, Any]] = {
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "param", "code"],
                "properties": {"message": _TEXT, "type": _TEXT, "param": _WORD, "code": _WORD},
            }
        },
    },
    "AnthropicError": {
        "type": "object",
        "required": ["type", "error", "request_id"],
        "properties": {
            "type": {"const": "error"},
            "error": {
                "type": "object",
                "required": ["type", "message"],
                "properties": {"type": _TEXT, "message": _TEXT},
            },
            "request_id": _TEXT,
        },
    },
    "OllamaError": {"type": "object", "required": ["error"], "properties": {"error": _TEXT}},
}
