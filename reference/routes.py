"""The page of HTTP: routes, the fields that are ours, what an answer says of its drafts, statuses and error codes."""

from collections import defaultdict
from typing import Final

from reference.markdown import code, codes, page, table
from reference.source import Call, calls
from services.gateway.generation.draft_statistics import MEANINGS as STATISTICS
from services.gateway.http.openapi import MEANINGS, plain
from services.gateway.http.route import Route
from services.gateway.requests.fields import GenerationFields
from services.gateway.table import ROUTES

# What makes an `ApiError`, with its status (None: the first argument) and where its code stands.
_MAKERS: Final[dict[str, tuple[int | None, int, str]]] = {
    "ApiError": (None, 99, ""),
    "invalid": (400, 2, ""),
    "unavailable": (503, 1, "service_unavailable"),
}


def text() -> str:
    """The page."""
    return page(
        "HTTP",
        "What each dialect understands is in [What the gateway speaks](../http.md); `/openapi.json` of a running"
        " gateway has the schema of every body.",
        "## Routes",
        table(("method", "paths", "what", "key", "answers"), map(_route, ROUTES)),
        "## Fields of ours",
        "In the body of every request that generates, in every dialect.",
        table(("field", "default", "meaning"), _fields()),
        "## What drafts were worth",
        "Each whole answer, and each chunk with a finish reason, has the `seed` that was used and an object"
        " `speculative`:",
        table(("key", "meaning"), ((code(key), meaning) for key, meaning in STATISTICS.items())),
        "## Statuses",
        "Before the first byte of a stream every refusal is a status; after it, an event of the stream. Anthropic's"
        " clients get 529 where others get 503.",
        table(("status", "meaning"), ((str(status), meaning) for status, meaning in MEANINGS.items())),
        "## Error codes",
        "`error.code` in OpenAI's shape; the metric `draftmesh_errors_total` counts by them.",
        table(("code", "status"), _codes()),
    )


def _route(route: Route) -> tuple[str, ...]:
    query = "".join(f"; {code(f'?{name}=')}: {purpose}" for name, purpose in route.query.items())
    answers = [] if route.refused else [route.media, *([route.stream] if route.stream else [])]
    return (
        route.method,
        codes(map(plain, route.paths)),
        route.summary + query,
        "" if route.open else "yes",
        codes(answers),
    )


def _fields() -> list[tuple[str, ...]]:
    return [
        (code(name), code(str(field.get_default(call_default_factory=True)).lower()), field.description)
        for name, field in GenerationFields.model_fields.items()
        if field.description
    ]


def _codes() -> list[tuple[str, str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for call in calls():
        if call.name in _MAKERS and call.file.startswith("services/gateway/"):
            status, name = _error(call)
            if name:
                found[name].add(status)
    return [(code(name), ", ".join(sorted(statuses))) for name, statuses in sorted(found.items())]


def _error(call: Call) -> tuple[str, str]:
    """The status and the code of an error that is made here; no code where it is not written out."""
    fixed, place, usual = _MAKERS[call.name]
    status = str(fixed) if fixed else call.argument(0, "status")
    return status, call.argument(place, "code") if call.has(place, "code") else usual
