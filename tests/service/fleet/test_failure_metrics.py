"""Whatever can go wrong shows in a metric: each row of the table in docs/failures.md has one that exists."""

import asyncio
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from services.verifier.counters import Counters
from tests.service.scripted import Stack, card, fixed, stack

FAILURES = Path(__file__).parents[3] / "docs" / "failures.md"
SHOWN = {
    "verifier is killed": "draftmesh_takeovers",
    "verifier stops (SIGTERM)": "draftmesh_takeovers",
    "verifier hangs, wakes as a zombie": "draftmesh_lost_to_successors",
    "no verifier of a model is left": "draftmesh_verifiers",
    "a request kills its verifiers": "draftmesh_poison_jobs",
    "deadline (`--request-timeout`, 1 h)": "draftmesh_requests",
    "gateway is killed": "draftmesh_unread_jobs",
    "gateway stops (SIGTERM)": "draftmesh_draining",
    "client leaves": "draftmesh_requests",
    "client stops reading": "draftmesh_requests",
    "a stop string": "draftmesh_requests",
    "the disk of the logs is full": "draftmesh_lost_log_lines",
    "drafter dies": "draftmesh_drafters",
    "drafter lies": "draftmesh_spec_decode_num_accepted_tokens",
    "drafter fills Redis with its keys": "draftmesh_drafters_refused",
    "rights in Redis change": "draftmesh_heartbeat_age_seconds",
    "llama.cpp cannot compute a decode": "draftmesh_errors",
    "drafter of another vocabulary": "draftmesh_drafters_refused",
    "drafter missed commits": "draftmesh_stale_proposals",
    "Redis is away for a while": "draftmesh_redis_up",
    "Redis comes back empty": "draftmesh_lost_jobs",
    "Redis comes back older (persistence)": "draftmesh_lost_logs",
    "Redis is full": "draftmesh_heartbeat_age_seconds",
    "too many requests": "draftmesh_errors",
    "one caller has too many": "draftmesh_errors",
    "a loop of a process fails": "process_start_time_seconds",
    "`up` is killed": "process_start_time_seconds",
}


def failures() -> list[str]:
    """The first column of the table."""
    lines = iter(FAILURES.read_text().splitlines())
    for line in lines:
        if line.startswith("| what | the client sees |"):
            break
    next(lines)
    rows = []
    while (line := next(lines, "")).startswith("|"):
        rows.append(line.split("|")[1].strip())
    return rows


async def exposed(s: Stack) -> dict[tuple[str, str], float]:
    """Every sample by name and by its label that is no model."""
    async with s.session.get(f"{s.url}/metrics") as response:
        families = list(text_string_to_metric_families(await response.text()))
    found = {}
    for family in families:
        for sample in family.samples:
            label = next((value for name, value in sample.labels.items() if name != "model"), "")
            found[family.name, label] = sample.value
    return found


async def test_every_failure_of_the_table_shows_in_a_metric(valkey_url: str, vocabulary: bytes) -> None:
    counters = {name: number for number, name in enumerate(Counters().values, start=1)}
    one = card(counters=counters, refused=(("drafter-1", "its vocabulary differs"),))
    async with stack(valkey_url, vocabulary, fixed(asyncio.Event()), cards=[one], max_live_tokens=1) as s:
        status, body = await s.post(n=2)
        assert (status, body["error"]["code"]) == (503, "queue_full")
        assert (await s.post(temperature=-1))[0] == 400
        found = await exposed(s)
    names = {name for name, _ in found}
    assert {row: SHOWN.get(row) for row in failures() if SHOWN.get(row) not in names} == {}
    assert found["draftmesh_lost_to_successors", ""] == counters["lost_stale"]
    assert found["draftmesh_drafters_refused", ""] == 1
    assert found["draftmesh_errors", "queue_full"] == 1
    assert found["draftmesh_errors", "invalid_request_error"] == 1
    assert found["draftmesh_redis_up", ""] == 1
    assert found["draftmesh_draining", ""] == 0
    assert 0 <= found["draftmesh_heartbeat_age_seconds", ""] < 60
