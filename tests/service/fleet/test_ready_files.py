"""What probes ask of a verifier and a drafter: their files come when they serve and are gone when they drain."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from services.drafter.lookup_proposer import LookupProposer
from services.drafter.worker import DrafterWorker
from services.verifier.worker import VerifierWorker
from shared.wire.broker import connect
from shared.wire.messages import Speculation
from tests.patience import HANG_S
from tests.toy_loaded import toy
from tests.toys import drafter_card


@pytest.mark.parametrize("kind", ["verifier", "drafter"])
async def test_the_file_is_there_while_a_process_takes_work(
    kind: str, valkey_url: str, model_path: Path, tmp_path: Path
) -> None:
    file = tmp_path / "ready"
    stop = asyncio.Event()
    async with connect(valkey_url) as broker, asyncio.timeout(HANG_S):
        worker: Any
        if kind == "verifier":
            loaded = toy(model_path, sequences=2)
            worker = VerifierWorker(broker, loaded, Speculation.AUTO, "verifier-ready", ready_file=str(file))
        else:
            card = drafter_card("drafter-ready", "lookup", "m")
            worker = DrafterWorker(broker, LookupProposer(), card, ready_file=str(file))
        running = asyncio.create_task(worker.run(stop))
        while not file.exists():  # noqa: ASYNC110 - a probe has nothing else to wait for
            await asyncio.sleep(0.01)
        assert not running.done()
        stop.set()
        await running
        assert not file.exists()
