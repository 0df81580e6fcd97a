"""The gateway as a process: it serves until asked to stop, then finishes running requests and leaves the registry."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog
from aiohttp import web
from redis.exceptions import RedisError

from services.gateway.app import build
from services.gateway.dialects.responses.recorders import Recorders
from services.gateway.generation.generator import Generator
from services.gateway.generation.limits import Limits
from services.gateway.generation.lost_models import LostModels
from services.gateway.http.activity import Activity
from services.gateway.http.attempts import Attempts
from services.gateway.http.background_work import Background
from services.gateway.http.gateway import Gateway
from services.gateway.http.guard import Guard
from services.gateway.http.keys_file import KeysFile, watch
from services.gateway.http.sse import HEARTBEAT_S, event
from services.gateway.models.directory import ModelDirectory
from services.gateway.monitoring.loop_health import LoopHealth
from services.gateway.monitoring.metrics import Metrics
from services.gateway.monitoring.watch import FleetWatch
from services.gateway.storage.allowance import Allowance
from services.gateway.storage.follow import LogFollower
from services.gateway.storage.kept_turns import TurnStore
from services.gateway.storage.record_follower import RecordFollower
from services.gateway.storage.records import RecordStore
from services.gateway.storage.response_store import ResponseStore
from services.gateway.storage.stores import Stores
from shared.errors import StartError
from shared.fleet.registry import Registry
from shared.process import api_keys, lifecycle, tracing
from shared.process.spans import Tracer
from shared.settings.gateway_options import GatewayOptions
from shared.wire import broker
from shared.wire.messages import GatewayCard

logger = structlog.get_logger()

FAREWELL_S: Final = 1.0  # for answers that did not end in time, to tell their clients
CLOSE_S: Final = 2.0  # for handlers that are cancelled after the drain to cancel their jobs


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """How one gateway runs. Port 0 takes a free one."""

    options: GatewayOptions
    heartbeat_s: float = HEARTBEAT_S

    @property
    def api_keys(self) -> list[bytes]:
        """The digests of the keys beside those in the file."""
        return [api_keys.digest(key) for key in self.options.api_key if key]


async def serve(settings: GatewaySettings, stop: asyncio.Event, started: "asyncio.Future[str] | None" = None) -> None:
    """Serve until `stop` is set; `started` gets the URL. Raises `StartError` or `BrokerError` if it cannot start."""
    options = settings.options
    instance = lifecycle.instance_name("gateway")
    file = KeysFile(options.api_keys_file) if options.api_keys_file else None
    guard = _guard(settings, file)
    async with AsyncExitStack() as stack:
        tracer = stack.enter_context(tracing.tracer(options.traces, "gateway", instance))
        clients = await stack.enter_async_context(broker.connect(options.redis))
        registry = Registry(clients.redis)
        follower = LogFollower(clients.redis, clients.blocking, instance)
        gateway = _assemble(settings, instance, guard, tracer, clients, registry, follower)
        async with _listen(settings, gateway) as url, lifecycle.Loops() as loops:
            lost_models = LostModels(gateway.directory, gateway.generator, options.absence_grace)
            card = _card(instance, url, gateway, lost_models)
            loops.start(follower.run, name="log follower")
            loops.start(partial(lifecycle.heartbeat, registry, card, gateway.beaten), name="heartbeat")
            loops.start(gateway.loop_health.run, name="loop health")
            loops.start(Recorders(gateway.stores.records, registry, gateway.background).run, name="recorders")
            loops.start(gateway.watch.run, name="watch")
            if file is not None:
                loops.start(partial(watch, file, lambda kept: guard.replace((*settings.api_keys, *kept))), name="keys")
            loops.start(lost_models.run, name="lost models")
            logger.info("gateway_started", url=url)
            if started is not None:
                started.set_result(url)
            await stop.wait()
            logger.info("gateway_draining", running=gateway.activity.running)
            await gateway.watch.end()
            await gateway.activity.drain(options.drain)
            gateway.generator.end()
            await gateway.activity.drain(FAREWELL_S)
            await gateway.background.close()
            loops.cancel()
        with suppress(RedisError, OSError):
            await registry.leave(instance)
    logger.info("gateway_stopped")


def _guard(settings: GatewaySettings, file: KeysFile | None) -> Guard:
    digests = [*settings.api_keys, *(file.digests if file else ())]
    option = "--published-host" if settings.options.published_host else "--host"
    api_keys.require(
        settings.options.published_host or settings.options.host, bool(digests), settings.options.no_auth, option
    )
    return Guard(digests, anyone=settings.options.no_auth)


def _assemble(
    settings: GatewaySettings,
    instance: str,
    guard: Guard,
    tracer: Tracer,
    clients: broker.Broker,
    registry: Registry,
    follower: LogFollower,
) -> Gateway:
    directory = ModelDirectory(registry)
    activity = Activity()
    loop_health = LoopHealth()
    metrics = Metrics(lambda: directory.last, lambda: activity.running)
    metrics.watch("draftmesh_draining", "Whether this gateway is shutting down: 1 or 0.", lambda: activity.draining)
    metrics.watch(
        "draftmesh_event_loop_lag_seconds",
        "Largest delay of the event loop in the last ten seconds.",
        lambda: loop_health.lag,
    )
    metrics.watch(
        "draftmesh_silence_seconds",
        "Time since a verifier last committed tokens for a request of this gateway.",
        follower.silence,
    )
    metrics.watch(
        "draftmesh_heartbeat_age_seconds",
        "Time since Redis last took a heartbeat of this gateway.",
        loop_health.heartbeat_age,
    )
    return Gateway(
        broker=clients,
        directory=directory,
        generator=Generator(
            clients,
            follower,
            instance,
            Limits(
                requests=settings.options.max_requests,
                per_caller=settings.options.max_requests_per_key,
                tokens=settings.options.max_live_tokens,
            ),
        ),
        guard=guard,
        metrics=metrics,
        stores=Stores(
            turns=TurnStore(clients.redis),
            responses=ResponseStore(clients.redis),
            records=RecordStore(clients.redis),
        ),
        timeout_ms=int(settings.options.request_timeout * 1000),
        follower=follower,
        loop_health=loop_health,
        attempts=Attempts(clients.redis),
        allowance=Allowance(
            clients.redis,
            requests=settings.options.max_requests_per_minute,
            size=settings.options.max_megabytes_per_minute * 1_000_000,
        ),
        background=Background(instance),
        record_follower=RecordFollower(follower),
        watch=FleetWatch(directory.cards, event),
        activity=activity,
        tracer=tracer,
        heartbeat_s=settings.heartbeat_s,
    )


@asynccontextmanager
async def _listen(settings: GatewaySettings, gateway: Gateway) -> AsyncIterator[str]:
    # aiohttp would decode bodies before any handler runs, and answer one that it cannot decode with a line of text.
    runner = web.AppRunner(
        build(gateway), handler_cancellation=True, access_log=None, shutdown_timeout=CLOSE_S, auto_decompress=False
    )
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, settings.options.host, settings.options.port).start()
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise StartError(
                "--port", settings.options.port, f"cannot listen on {settings.options.host} ({reason})"
            ) from None
        port = runner.addresses[0][1]
        host = f"[{settings.options.host}]" if ":" in settings.options.host else settings.options.host
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


def _card(instance: str, url: str, gateway: Gateway, lost_models: LostModels) -> Callable[[], GatewayCard]:
    """Makes this gateway's card as it is at each call."""
    created = int(time.time())
    return lambda: GatewayCard(
        id=instance,
        host=socket.gethostname(),
        pid=os.getpid(),
        url=url,
        streams=gateway.activity.running,
        created=created,
        deserted=lost_models.deserted,
        waiting=tuple(gateway.metrics.queue_metrics.waiting.items()),
    )
