"""A crowd of streams on one private fleet, and what it cost the gateway."""

import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import numpy as np

from bench.gateway.client import Arrivals
from bench.gateway.latency import Window, added_ms, tokens_within, window
from bench.gateway.target import Commits
from bench.processes import cpu_s
from services.launcher.fleet.child import Child, Program
from services.launcher.fleet.cores import Cores, forking_on
from services.launcher.fleet.stack import Stack, StackError
from services.launcher.models.pair import default_model

MAX_REQUESTS: Final = 2000  # of the gateway: nothing here is refused
_SAMPLE_S: Final = 0.25
_CANCELLED_S: Final = 30.0  # a target that has not heard by then never will
_OUTLIVES_S: Final = 120.0  # a client that takes this much longer hangs


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """How many streams there are and how their tokens come."""

    streams: int = 300
    verifiers: int = 5  # a verifier serves at most 64 requests
    round_ms: float = 70.0
    width: int = 4
    stalled: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What was seen while all streams flowed. Latency: from just before the commit is sent to the client's read."""

    tokens_per_second: float
    seconds: float
    median_ms: float
    p99_ms: float
    worst_ms: float
    commits: int
    tokens_per_read: float
    gateway_us_per_token: float  # CPU of user and system
    cpu: dict[str, float]  # cores' worth, by process
    start_s: float  # from the first request to the last stream's first token


class Fleet:
    """A gateway and a scripted target. Use it as an async context manager."""

    def __init__(self, crowd: Crowd, *, gateway_cores: Cores, other_cores: Cores) -> None:
        self._crowd = crowd
        self._other_cores = other_cores
        self._folder = tempfile.TemporaryDirectory(prefix="draftmesh-load-")
        self._record = Path(self._folder.name) / "commits.jsonl"
        self._first = 1
        command = [sys.executable, "-m", "bench.gateway.target", "--record", str(self._record)]
        command += ["--verifiers", str(crowd.verifiers), "--slots", "512"]
        command += ["--round-ms", str(crowd.round_ms), "--width", str(crowd.width)]
        self.stack = Stack(
            default_model(),
            engine_cores=other_cores,
            side_cores=other_cores,
            gateway_cores=gateway_cores,
            ctx=1 << 21,
            commands={"verifier": command},
            gateway_options=("--max-requests", str(MAX_REQUESTS)),
        )

    async def __aenter__(self) -> "Fleet":
        await self.stack.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.stack.__aexit__(*error)
        self._folder.cleanup()

    async def run(self, seconds: float) -> Run:
        """One crowd, for so many seconds after its last stream began. Raises `StackError` if a stream ends early."""
        crowd, first = self._crowd, self._first
        self._first += crowd.streams + crowd.stalled
        output = Path(self._folder.name) / "arrivals.json"
        options = {"--streams": crowd.streams, "--stalled": crowd.stalled, "--seconds": seconds, "--first": first}
        command = [sys.executable, "-m", "bench.gateway.client", str(urlsplit(self.stack.url).port), str(output)]
        command += [str(word) for option in options.items() for word in option]
        client = Child(
            Program(name="client", command=tuple(command), stage=0, environment=self.stack.gateway.program.environment),
            Path(self._folder.name) / "client.log",
        )
        with forking_on(self._other_cores):
            await client.start()
        started = time.monotonic_ns()
        processes = {
            "gateway": self.stack.gateway,
            "valkey": self.stack.valkey,
            "target": self.stack.verifier,
            "client": client,
        }
        samples = await _watch(client, processes, seconds)
        streams = msgspec.json.decode(output.read_bytes(), type=list[Arrivals])
        return _summary(streams, await self._commits(streams), samples, started)

    async def _commits(self, streams: Sequence[Arrivals]) -> dict[int, Commits]:
        """The record of these streams, which the target writes when it learns that they were cancelled."""
        wanted = {stream.seed for stream in streams}
        deadline = time.monotonic() + _CANCELLED_S
        while True:
            lines = self._record.read_text().splitlines()
            found = {one.seed: one for one in (msgspec.json.decode(line, type=Commits) for line in lines)}
            if wanted <= found.keys():
                return found
            if time.monotonic() > deadline:
                raise StackError(f"{len(wanted - found.keys())} of {len(wanted)} jobs were not cancelled")
            await asyncio.sleep(_SAMPLE_S)


Samples = list[tuple[int, dict[str, float]]]


async def _watch(client: Child, processes: Mapping[str, Child], seconds: float) -> Samples:
    """CPU seconds of each process now and then, until the client ends."""
    samples: Samples = []
    deadline = time.monotonic() + seconds + _OUTLIVES_S
    ended = asyncio.ensure_future(client.wait())
    try:
        while not ended.done():
            samples.append((time.monotonic_ns(), _cpu(processes)))
            await asyncio.wait([ended], timeout=_SAMPLE_S)
            if time.monotonic() > deadline:
                raise StackError("the client did not end")
    finally:
        client.kill()
    if await ended:
        raise StackError(f"the client failed: {client.error_line()}")
    return samples


def _cpu(processes: Mapping[str, Child]) -> dict[str, float]:
    return {name: cpu_s(child.pid) for name, child in processes.items() if child.alive}


def _summary(streams: Sequence[Arrivals], commits: Mapping[int, Commits], samples: Samples, started: int) -> Run:
    flowing = window(streams)
    latencies = added_ms(commits, streams, flowing)
    within = [sample for sample in samples if sample[0] in flowing]
    if len(within) < 2:
        raise StackError("the machine was too busy to measure anything; try again, or with more --seconds")
    (begin, before), (end, after) = within[0], within[-1]
    measured = Window(begin, end)
    used = {name: after[name] - before[name] for name in after}
    reads = sum(len(one.read_ns) for one in streams)
    return Run(
        tokens_per_second=tokens_within(streams, flowing) / flowing.seconds,
        seconds=flowing.seconds,
        median_ms=float(np.percentile(latencies, 50)),
        p99_ms=float(np.percentile(latencies, 99)),
        worst_ms=max(latencies),
        commits=len(latencies),
        tokens_per_read=sum(one.offsets[-1] for one in streams) / reads,
        gateway_us_per_token=used["gateway"] / tokens_within(streams, measured) * 1e6,
        cpu={name: seconds / measured.seconds for name, seconds in used.items()},
        start_s=(flowing.start_ns - started) / 1e9,
    )
