"""Killing any one loop of any service ends the service: none stands there half dead."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from services.drafter.lookup_proposer import LookupProposer
from services.drafter.worker import DrafterWorker as Drafter
from services.gateway.service import GatewaySettings, serve
from services.verifier.worker import VerifierWorker as Verifier
from shared.process.lifecycle import LoopEnded
from shared.settings.gateway_options import GatewayOptions
from shared.wire.broker import Broker
from shared.wire.messages import Speculation
from tests.patience import HANG_S
from tests.toy_loaded import toy
from tests.toys import drafter_card

LOOPS = {
    "gateway": ("log follower", "log reader", "log reader's wake-up", "heartbeat", "loop health"),
    "verifier": ("new", "orphans", "readers", "committer", "listener", "registry", "rounds"),
    "drafter": ("inbox", "heartbeat", "measure", "draft"),
}


def services(broker: Broker, url: str, path: Path) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
    stop = asyncio.Event()
    settings = GatewaySettings(GatewayOptions(redis=url, host="127.0.0.1", port=0, max_requests=1, request_timeout=60))
    return {
        "gateway": lambda: serve(settings, stop),
        "verifier": lambda: Verifier(broker, toy(path), Speculation.AUTO, "verifier-1").run(stop),
        "drafter": lambda: Drafter(broker, LookupProposer(), drafter_card("drafter-1", "lookup")).run(stop),
    }


def leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


@pytest.mark.parametrize(("service", "loop"), [(name, loop) for name, loops in LOOPS.items() for loop in loops])
async def test_a_service_ends_with_any_of_its_loops(
    valkey: Broker, valkey_url: str, model_path: Path, service: str, loop: str
) -> None:
    before = asyncio.all_tasks()
    running = asyncio.create_task(services(valkey, valkey_url, model_path)[service]())
    async with asyncio.timeout(HANG_S):
        found: dict[str, asyncio.Task[object]] = {}
        while not set(LOOPS[service]) <= found.keys():
            assert not running.done()
            await asyncio.sleep(0.01)
            found = {task.get_name(): task for task in asyncio.all_tasks() - before}
        found[loop].cancel()
        with pytest.raises(ExceptionGroup) as caught:
            await running
    assert [str(leaf) for leaf in leaves(caught.value) if isinstance(leaf, LoopEnded)] == [loop]
