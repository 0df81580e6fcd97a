"""The fleet's numbers add up, whatever was drafted, from the engine's counters to the exposition text."""

import random
from collections.abc import Sequence

import prometheus_client as prometheus
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from services.gateway.monitoring.metrics import FleetCollector, Metrics
from services.launcher.look import figures, status
from services.verifier.engine import Engine
from shared.fleet.describe import describe
from shared.fleet.fleet_values import RoundStart
from shared.law import prefix
from shared.law.speedup import RowCosts
from shared.wire.jobs import Claim
from shared.wire.messages import Card, Proposal, RoundStarts, Sampling, Speculation, VerifierCard
from tests.examples import few
from tests.toys import EOG, ToyTarget, drafter_card, job, plain_answer

CHEAP = RowCosts({1: 10.0, 64: 16.0})


def card(
    name: str,
    counters: dict[str, int],
    positions: Sequence[int] = (),
    model: str = "m",
    starts: Sequence[RoundStarts] = (),
) -> VerifierCard:
    return VerifierCard(
        id=name, host="h", pid=1, model=model, fingerprint="f", vocabulary="w", n_vocab=8, n_ctx=64, slots=1,
        device="cpu", exactness="law", exactness_note="", layout="unified", speculation=Speculation.AUTO,
        counters=counters, accepted_per_position=tuple(positions), starts=tuple(starts),
    )  # fmt: skip


def exposed(collector: FleetCollector) -> dict[tuple[str, str], float]:
    """Every sample of a collector by name and model; samples by position are added up."""
    registry = prometheus.CollectorRegistry()
    registry.register(collector)
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(prometheus.generate_latest(registry).decode()):
        for sample in family.samples:
            key = (sample.name.removeprefix("draftmesh_"), sample.labels.get("model", ""))
            found[key] = found.get(key, 0.0) + sample.value
    return found


def served(seed: int, requests: int) -> tuple[Engine, int]:
    """An engine that answered requests with shared prompts, beside a drafter that is often wrong; tokens answered."""
    source = random.Random(seed)
    engine = Engine(ToyTarget(sequences=2), CHEAP, [EOG], clock=lambda: 0.0)
    engine.drafters.update([drafter_card("d")])
    base = [source.randrange(2, 60) for _ in range(40)]
    answered = 0
    for index in range(requests):
        request = job(
            f"r{index}",
            prompt=[*base[: source.randrange(20, 40)], *([3] * source.randrange(1, 4))],
            max_tokens=12,
            sampling=Sampling(seed=index, logit_bias=((EOG, -100.0),)),
            cache_prompt=source.random() < 0.8,
        )
        answer = plain_answer(request)
        taken_over = answer[: source.choice([0, 0, 5])]
        generation = engine.admit(
            Claim(job=request, epoch=1, committed=len(taken_over), remaining_ms=10_000), list(taken_over)
        )
        engine.assignment.enlist(generation, 0.0)
        while generation in engine.running:
            at = generation.offset
            guess = [token if source.random() < 0.8 else 2 for token in answer[at : at + source.randrange(1, 7)]]
            hashed = prefix.extend_all(prefix.EMPTY, [*request.prompt, *answer[:at]])
            proposal = Proposal(
                request_id=request.request_id, epoch=1, base=at, prefix_hash=hashed, tokens=tuple(guess),
                scores=(0.8,) * len(guess), drafter="d", step_us=1000,
            )  # fmt: skip
            engine.take([proposal], 0.0)
            round = engine.plan(may_wait=False)
            decoded = engine.run(round)
            for gain in engine.finish(decoded):
                answered += len(gain.chunk.tokens) if gain.chunk else 0
            if generation.offset == request.max_tokens:
                engine.drop(generation)
    return engine, answered


@settings(max_examples=few(15))
@given(st.integers(0, 10_000), st.integers(1, 6))
def test_what_a_verifier_counts_adds_up_and_is_what_the_gateway_exposes(seed: int, requests: int) -> None:
    engine, answered = served(seed, requests)
    counters, positions = engine.counters.values, engine.counters.accepted_per_position
    assert counters["tokens"] == answered
    assert counters["accepted_tokens"] == sum(positions) == sum(drafter.counts.accepted for drafter in engine.drafters)
    assert positions == sorted(positions, reverse=True)
    assert counters["accepted_tokens"] <= counters["draft_tokens"]
    assert counters["drafts"] <= counters["rounds"]
    assert counters["tokens"] == counters["rounds"] + counters["accepted_tokens"]
    assert 0 <= counters["cached_tokens"] <= counters["prompt_tokens"]
    starts = engine.counters.starts
    # Every round is some request's last or followed by another one.
    assert sum(start.rounds for start in starts) == counters["rounds"] - requests
    assert all(start.ready <= start.rounds for start in starts)
    shown = exposed(FleetCollector(lambda: [card("v", dict(counters), positions, starts=starts)]))
    assert shown["round_starts_total", "m"] == counters["rounds"] - requests
    assert shown["prefix_cache_queries_total", "m"] == counters["prompt_tokens"]
    assert shown["prefix_cache_hits_total", "m"] == counters["cached_tokens"]
    assert (
        shown["spec_decode_num_accepted_tokens_total", "m"]
        == shown["spec_decode_num_accepted_tokens_per_pos_total", "m"]
        == counters["accepted_tokens"]
    )


def test_a_shared_prompt_is_a_hit() -> None:
    engine, _ = served(seed=1, requests=6)
    assert engine.counters.values["cached_tokens"] > 0


def test_a_request_that_comes_back_to_its_own_cells_hits_no_more_than_its_prompt() -> None:
    """Its answer's beginning is resident too, and nobody looked that up."""
    engine = Engine(ToyTarget(), CHEAP, [EOG], clock=lambda: 0.0)
    request = job(max_tokens=12)
    answer = plain_answer(request)
    for output in ([], answer[:8]):
        claim = Claim(job=request, epoch=1, committed=len(output), remaining_ms=10_000)
        generation = engine.admit(claim, list(output))
        while generation.offset < request.max_tokens:
            round = engine.plan(may_wait=False)
            decoded = engine.run(round)
            engine.finish(decoded)
        engine.drop(generation)
    assert generation.cached > len(request.prompt)
    assert engine.counters.values["cached_tokens"] == len(request.prompt)


numbers = st.integers(0, 1000)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("mn"), numbers, numbers), max_size=8))
def test_sums_over_verifiers_never_fall_when_one_leaves(seen: list[tuple[str, str, int, int]]) -> None:
    """Each card in turn is the only one alive; a verifier that left keeps its share."""
    alive: list[Card] = []
    collector = FleetCollector(lambda: alive)
    last: dict[str, tuple[str, int, int]] = {}
    for name, model, prompt, cached in seen:
        # A verifier's counters only grow, and its model never changes.
        model, before, hits = last.get(name, (model, 0, 0))
        last[name] = (model, before + prompt, hits + min(cached, prompt))
        alive[:] = [card(name, {"prompt_tokens": last[name][1], "cached_tokens": last[name][2]}, model=model)]
        shown = exposed(collector)
        for one in {entry[0] for entry in last.values()}:
            of_model = [entry for entry in last.values() if entry[0] == one]
            assert shown["prefix_cache_queries_total", one] == sum(entry[1] for entry in of_model)
            assert shown["prefix_cache_hits_total", one] == sum(entry[2] for entry in of_model)


def test_a_gateway_without_verifiers_exposes_no_hits() -> None:
    assert b"draftmesh_prefix_cache_hits_total{" not in Metrics(list, lambda: 0).text()


def test_status_shows_the_hit_rate_of_each_verifier() -> None:
    cards: list[Card] = [card("new", {}), card("busy", {"prompt_tokens": 200, "cached_tokens": 50})]
    found = describe(cards)
    assert [verifier.cache_hit_rate for verifier in found.verifiers] == [None, 0.25]
    assert [figures.shown("cache_hit_rate", verifier.cache_hit_rate) for verifier in found.verifiers] == [
        "–",
        "25%",
    ]


def began(after: str, rounds: int, ready: int, offset: int = 0) -> RoundStarts:
    return RoundStarts(after=after, offset=offset, rounds=rounds, ready=ready)


def test_round_starts_are_exposed_by_what_ended_the_round_before() -> None:
    cards: list[Card] = [
        card("v", {}, starts=[began("accepted", 10, 9), began("refused", 4, 1, offset=2)]),
        card("w", {}, starts=[began("refused", 2, 2, offset=2)]),
    ]
    text = Metrics(lambda: cards, lambda: 0).text().decode()
    found = {line for line in text.splitlines() if line.startswith("draftmesh_round_starts_total")}
    assert found == {
        'draftmesh_round_starts_total{after="accepted",drafts="ready",model="m",offset="0"} 9.0',
        'draftmesh_round_starts_total{after="accepted",drafts="none",model="m",offset="0"} 1.0',
        'draftmesh_round_starts_total{after="refused",drafts="ready",model="m",offset="2"} 3.0',
        'draftmesh_round_starts_total{after="refused",drafts="none",model="m",offset="2"} 3.0',
    }


@given(st.lists(st.tuples(st.text(max_size=5), st.integers(0, 2**40)), max_size=30))
def test_no_verifier_can_make_up_labels_without_end(starts: list[tuple[str, int]]) -> None:
    made = card("v", {}, starts=[began(after, 2, 1, offset) for after, offset in starts])
    metric = FleetCollector(lambda: [made])._starts()
    assert {sample.labels["after"] for sample in metric.samples} <= {"plain", "accepted", "refused", "other"}
    assert {sample.labels["offset"] for sample in metric.samples} <= {str(offset) for offset in range(33)}


def test_status_shows_how_rounds_began() -> None:
    starts = [began("accepted", 10, 9), began("refused", 4, 1), began("refused", 6, 2, offset=1)]
    found = describe([card("v", {}, starts=starts), card("new", {})]).verifiers
    assert found[0].drafts_ready == {"all": 0.6, "accepted": 0.9, "refused": 0.3, "plain": None}
    assert found[0].round_starts[2] == RoundStart(after="refused", offset=1, rounds=6, ready=2)
    lines = [str(part) for verifier in found for part in status._remarks(verifier)]
    assert lines == ["60% of rounds found drafts ready: 90% after all were accepted, 30% after a refusal"]
