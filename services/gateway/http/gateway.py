"""Everything that the routes share, built once by the service and read only."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aiohttp import web

from services.gateway.generation.generator import Generator
from services.gateway.http.activity import Activity
from services.gateway.http.attempts import Attempts
from services.gateway.http.background_work import Background
from services.gateway.http.guard import Guard
from services.gateway.http.sse import HEARTBEAT_S
from services.gateway.models.directory import ModelDirectory
from services.gateway.monitoring.loop_health import LoopHealth
from services.gateway.monitoring.metrics import Metrics
from services.gateway.monitoring.watch import FleetWatch
from services.gateway.storage.allowance import Allowance
from services.gateway.storage.follow import LogFollower
from services.gateway.storage.record_follower import RecordFollower
from services.gateway.storage.stores import Stores
from shared.process.spans import Tracer
from shared.wire.broker import Broker


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """One gateway's parts."""

    broker: Broker
    directory: ModelDirectory
    generator: Generator
    guard: Guard
    metrics: Metrics
    stores: Stores
    timeout_ms: int
    follower: LogFollower
    loop_health: LoopHealth
    attempts: Attempts
    allowance: Allowance
    background: Background
    record_follower: RecordFollower
    watch: FleetWatch
    activity: Activity = field(default_factory=Activity)
    tracer: Tracer = field(default_factory=Tracer)
    heartbeat_s: float = HEARTBEAT_S

    async def beaten(self) -> None:
        """Note that a heartbeat reached Redis. Raises redis-py's errors."""
        self.loop_health.heard()
        await self.attempts.renew()
        cards = await self.directory.cards()
        await self.metrics.queue_metrics.look(self.broker, cards)
        self.watch.remember(cards)


GATEWAY = web.AppKey("gateway", Gateway)
DOCUMENT = web.AppKey("document", partial[dict[str, Any]])  # makes the OpenAPI document
CALLER = web.RequestKey("caller", str)  # what `Guard.check` gave
REQUEST_ID = web.RequestKey("request_id", str)  # from the client, or generated: for headers, errors and logs
ANSWER_ID = web.RequestKey("answer_id", str)  # hexadecimal and always generated: stored objects are found by it
