"""A card with something in every place, as `bench --report` writes one."""

from msgspec import structs

from services.launcher.bench.card import (
    Card,
    ReportedAcceptance,
    ReportedComparison,
    ReportedDrafter,
    ReportedResult,
    ReportedServer,
    ReportedSettings,
    ReportedVerifier,
)
from services.launcher.bench.machine import Machine
from services.launcher.bench.summary import Percentiles, Ratio, Spread


def spread(mean: float) -> Spread:
    return Spread(mean=mean, min=0.8 * mean, max=1.25 * mean, stdev=0.1 * mean, count=3)


def ratio(mean: float) -> Ratio:
    return Ratio(mean=mean, min=0.75 * mean, max=1.2 * mean, pairs=3)


def result(workload: str, temperature: float, server: str, speed: float) -> ReportedResult:
    drafts = server != "plain"
    return ReportedResult(
        workload=workload,
        temperature=temperature,
        concurrency=1,
        server=server,
        answers=3,
        failed=0 if drafts else 1,
        tokens_per_second=spread(speed),
        total_tokens_per_second=spread(0.9 * speed),
        first_token_ms=Percentiles(p50=211.5, p99=301.25),
        time_per_token_ms=Percentiles(p50=1000 / speed, p99=1200 / speed),
        inter_token_ms=Percentiles(p50=81.5, p99=122.0),
        drafted=300 if drafts else 0,
        accepted=210 if drafts else 0,
        acceptance_rate=0.7 if drafts else None,
        acceptance_by_offset=(0.8, 0.6) if drafts else (),
        tokens_per_round=3.25 if drafts else 1.0,
    )


def comparison(workload: str | None, temperature: float, mean: float) -> ReportedComparison:
    return ReportedComparison(
        workload=workload,
        temperature=temperature,
        concurrency=1,
        peer="plain",
        decode=ratio(mean),
        total=ratio(0.9 * mean),
        first_token=ratio(1.02),
    )


def server(name: str, *, plain: bool = False) -> ReportedServer:
    verifier = ReportedVerifier(
        model="big", device="cuda:0", exactness="law", layout="unified", ctx=4096, row_ms={1: 70.0, 4: 90.5, 16: 240.0}
    )
    model = ReportedDrafter(
        model="small",
        kind="drafter",
        device="cpu",
        tokens_per_second=161.0,
        round_trip_ms=0.6,
        drafted=280,
        accepted=200,
        acceptance_rate=200 / 280,
        added=150,
    )
    lookup = structs.replace(model, model="", kind="lookup drafter", tokens_per_second=0.0, round_trip_ms=None)
    return ReportedServer(
        name=name,
        local=True,
        plain=plain,
        model="big",
        software="draftmesh",
        fingerprint="fp_1",
        own_truncation=False,
        verifiers=None if plain else (verifier,),
        drafters=None if plain else (model, lookup),
    )


CARD = Card(
    created="2026-11-29T22:00:00+00:00",
    draftmesh="0.1.0",
    command="draftmesh bench http://127.0.0.1:7071 --seed 5",
    machine=Machine(cpu="A CPU <64>", cores=2, memory_bytes=8 << 30, system="Linux", python="3.11.7"),
    settings=ReportedSettings(
        workloads=("chat", "edit"),
        concurrencies=(1,),
        temperatures=(0.0, 1.0),
        tokens=128,
        repeat=3,
        seed=5,
        interrupted=False,
    ),
    servers=(server("draftmesh"), server("plain", plain=True)),
    results=tuple(
        result(workload, temperature, name, speed)
        for temperature in (0.0, 1.0)
        for workload in ("chat", "edit")
        for name, speed in (("draftmesh", 39.125 - temperature), ("plain", 13.5))
    ),
    comparisons=tuple(
        comparison(workload, temperature, mean)
        for temperature in (0.0, 1.0)
        for workload, mean in (("chat", 2.5), ("edit", 3.3), (None, 2.875 - temperature))
    ),
    acceptance=(
        ReportedAcceptance(
            server="draftmesh",
            temperature=0.0,
            drafted=600,
            accepted=420,
            rate=0.7,
            by_offset=(0.8, 0.6, 0.5),
            reached=(150.0, 120.0, 72.0),
        ),
    ),
    remarks=("plain: 1 of 4 requests failed",),
)
