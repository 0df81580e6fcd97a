"""JSON bodies as pydantic models, which check requests, build answers and describe both in the OpenAPI document."""

from aiohttp import web
from pydantic import BaseModel, ConfigDict


class Given(BaseModel):
    """A request's body: unknown fields are ignored."""

    model_config = ConfigDict(frozen=True)


class Reply(BaseModel):
    """An answer's body."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def reply(body: BaseModel) -> web.Response:
    """The answer; fields that are None are left out."""
    return web.Response(body=body.model_dump_json(exclude_none=True).encode(), content_type="application/json")
