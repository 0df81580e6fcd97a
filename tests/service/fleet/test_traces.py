"""One trace from the client's request through Redis to the verifier's rounds."""

import asyncio
from pathlib import Path

import aiohttp
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from services.gateway.service import GatewaySettings, serve
from shared.process import tracing
from shared.settings.gateway_options import GatewayOptions
from shared.wire.broker import Broker
from tests.service.verifier.test_verifier import until
from tests.stack import client, verifier
from tests.toy_loaded import toy
from tests.toys import EOG
from tests.traced import recording

CLIENTS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize("header", [CLIENTS, None])
async def test_a_request_is_one_trace_from_the_client_to_the_rounds(
    valkey: Broker, valkey_url: str, model_path: Path, header: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = InMemorySpanExporter()
    monkeypatch.setattr(tracing, "tracer", lambda *_: recording(exporter))
    stop, started = asyncio.Event(), asyncio.get_running_loop().create_future()
    settings = GatewaySettings(
        GatewayOptions(redis=valkey_url, host="127.0.0.1", port=0, max_requests=8, request_timeout=60.0)
    )
    with recording(exporter) as tracer:
        async with (
            verifier(valkey_url, toy(model_path), tracer=tracer),
            client(valkey_url, model_path) as one,
            aiohttp.ClientSession() as session,
            asyncio.TaskGroup() as group,
        ):
            await one.cards(1)
            group.create_task(serve(settings, stop, started))
            body = {"prompt": [5, 6, 7], "max_tokens": 8, "logit_bias": {str(EOG): -100}}
            headers = {"traceparent": header} if header else {}
            async with session.post(f"{await started}/v1/completions", json=body, headers=headers) as response:
                assert response.status == 200
            await until(lambda: len(exporter.get_finished_spans()) == 4)
            stop.set()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    request = spans.pop("POST /v1/completions")
    assert set(spans) == {"queue", "prefill", "decode"}
    assert request.context is not None
    for span in spans.values():
        assert span.parent is not None
        assert span.parent.span_id == request.context.span_id
    assert (request.parent is not None) == (header is not None)
    if request.parent is not None:
        assert f"{request.parent.trace_id:032x}-{request.parent.span_id:016x}" in CLIENTS
    told = dict(request.attributes or {})
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (3, 8)
    assert told["draftmesh.outcome"] == "length"
    assert told["draftmesh.rounds"] == dict(spans["decode"].attributes or {})["draftmesh.rounds"]
