"""JSON bodies as pydantic models, which check requests, build answers and describe both in the OpenAPI document.

JSON to an object, an object to a model, a validation error to one clear line; and a model to an answer.
"""

from codecs import BOM_UTF8
from typing import Any, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from services.gateway.errors import ApiError, invalid
from services.gateway.requests.bounds import check_shape

M = TypeVar("M", bound=BaseModel)


class Given(BaseModel):
    """A request's body: unknown fields are ignored."""

    model_config = ConfigDict(frozen=True)


class Reply(BaseModel):
    """An answer's body."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def reply(body: BaseModel) -> web.Response:
    """The answer; fields that are None are left out."""
    return web.Response(body=body.model_dump_json(exclude_none=True).encode(), content_type="application/json")


def parse_object(data: bytes) -> dict[str, Any]:
    """The JSON object in `data` without its nulls. Raises a 400 `ApiError`."""
    try:
        payload = from_json(data.removeprefix(BOM_UTF8), allow_inf_nan=False)
    except ValueError as error:
        raise invalid(None, f"The body is not valid JSON: {error}.", "invalid_json") from None
    if not isinstance(payload, dict):
        raise invalid(None, "The body must be a JSON object.", "invalid_json")
    check_shape(payload)
    return {name: value for name, value in payload.items() if value is not None}


def checked(model: type[M], payload: dict[str, Any]) -> M:
    """The payload as `model`. Raises a 400 `ApiError` that names the first field at fault."""
    try:
        return model.model_validate(payload)
    except ValidationError as error:
        raise describe(error) from None


def describe(error: ValidationError) -> ApiError:
    """The first finding of a failed validation as one clear line."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    # Union branches and validators append their own names to the location; clients know only their fields.
    location = [part for part in first["loc"] if isinstance(part, int) or part.isidentifier()]
    if location[-1:] == ["speculative"]:
        return invalid("speculative", "'speculative' must be \"auto\", true or false.")
    param = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    if first["type"] == "missing":
        return invalid(param, f"'{param}' is required.", "missing_required_parameter")
    return invalid(param, f"'{param}': {first['msg'][:1].lower()}{first['msg'][1:]}.")
