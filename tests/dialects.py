"""Servers of several dialects for the benchmark's tests: small, scripted, and with a memory of what they were asked."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Answer = Callable[[dict[str, Any]], list[str] | web.Response | None]  # None: no answer until the server stops


def event(**fields: Any) -> str:
    return f"data: {json.dumps(fields)}\n\n"


def piece(text: str, finish: str | None = None, **more: Any) -> str:
    return event(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": finish}], **more)


DONE = "data: [DONE]\n\n"
OURS = {"drafted": 4, "accepted": 3, "rounds": 2, "acceptance_per_offset": [1.0, 0.5], "reason": None, "by_source": {}}


def ours(body: dict[str, Any]) -> list[str]:
    """As draftmesh answers: a chunk per commit, and one with the statistics."""
    return [
        piece("", system_fingerprint="fp"),
        piece("Hello wor"),
        piece("ld"),
        piece("", "length", seed=3, speculative=OURS),
        event(choices=[], usage={"prompt_tokens": 9, "completion_tokens": 5}),
        DONE,
    ]


def llama_server(body: dict[str, Any]) -> list[str]:
    """As llama-server answers: a chunk per token, and counts beside the usage."""
    timings = {"predicted_n": 4, "draft_n": 3, "draft_n_accepted": 2}
    return [
        event(choices=[{"index": 0, "delta": {"role": "assistant", "content": None}, "finish_reason": None}]),
        *(piece(text) for text in ("a", "b", "c", "d")),
        piece("", "stop"),
        event(choices=[], usage={"prompt_tokens": 8, "completion_tokens": 4}, timings=timings),
        DONE,
    ]


def bare(body: dict[str, Any]) -> list[str]:
    """The least that a stream can be, from a model that thinks first."""
    thought = event(choices=[{"index": 0, "delta": {"reasoning_content": "Hm"}, "finish_reason": None}])
    return [thought, piece("a"), piece("b", "stop"), DONE]


def cut_off(body: dict[str, Any]) -> list[str]:
    return [piece("a")]


def failing(body: dict[str, Any]) -> web.Response:
    return web.json_response({"error": {"message": "out of memory"}}, status=500)


def strict(body: dict[str, Any]) -> list[str] | web.Response:
    """Refuses fields that OpenAI does not know."""
    if "top_k" in body:
        return web.json_response({"error": {"message": "unknown field top_k"}}, status=400)
    return ours(body)


@dataclass
class Fake:
    """A server that answers as `answer` says, and remembers what it was asked."""

    answer: Answer
    models: object = field(default_factory=lambda: {"data": [{"id": "small"}, {"id": "other"}]})
    status: int = 200
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)  # may be shared between servers
    name: str = "fake"
    statuses: list[dict[str, Any]] = field(default_factory=list)  # what /status says, in turn; the last one stays
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def app(self) -> web.Application:
        app = web.Application()
        app.on_shutdown.append(self._stop)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        if self.statuses:  # only ours has these
            app.router.add_get("/props", self._props)
            app.router.add_get("/status", self._status)
        return app

    async def _props(self, request: web.Request) -> web.Response:
        self.keys.append(request.headers.get("Authorization", ""))
        return web.json_response({"build_info": "draftmesh", "total_slots": 8})

    async def _status(self, request: web.Request) -> web.Response:
        self.keys.append(request.headers.get("Authorization", ""))
        return web.json_response(self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0])

    async def _stop(self, _: web.Application) -> None:
        self.stopping.set()

    async def _models(self, request: web.Request) -> web.Response:
        self.keys.append(request.headers.get("Authorization", ""))
        return web.json_response(self.models, status=self.status)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body)
        self.log.append(self.name)
        self.keys.append(request.headers.get("Authorization", ""))
        lines = self.answer(body)
        if lines is None:
            await self.stopping.wait()
            return web.Response(status=503)
        if isinstance(lines, web.Response):
            return lines
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for line in lines:
            await response.write(line.encode())
        return response
