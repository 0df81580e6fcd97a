"""What this gateway counts and what the fleet's cards say, for Prometheus.

Label values come from closed sets. Metrics of speculation and prefix cache have vLLM's names after our prefix, so that
its dashboards need only one replacement.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import prometheus_client as prometheus
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from services.gateway.monitoring.queue_metrics import QueueMetrics
from shared.process import logs
from shared.wire.messages import Card, DrafterCard, RoundStarts, VerifierCard

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_GAPS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_FLEET: Final = {
    "spec_decode_num_drafts": ("drafts", "Rounds in which drafts were verified."),
    "spec_decode_num_draft_tokens": ("draft_tokens", "Draft tokens verified."),
    "spec_decode_num_accepted_tokens": ("accepted_tokens", "Draft tokens accepted."),
    "prefix_cache_queries": ("prompt_tokens", "Prompt tokens looked up in the prefix cache."),
    "prefix_cache_hits": ("cached_tokens", "Prompt tokens taken from the prefix cache instead of being computed."),
    "prefix_cache_host_hits": (
        "restored_tokens",
        "Prompt tokens among the hits that came back from host memory; the device's cache had the rest.",
    ),
    "prefix_cache_saved_bytes": ("saved_bytes", "Bytes of ended conversations copied into host memory."),
    "prefix_cache_evictions": ("evicted_states", "Conversations dropped from host memory for lack of room."),
    "rounds": ("rounds", "Rounds, with drafts or without."),
    "decodes": ("decodes", "Decodes of the target."),
    "reused_graphs": ("reused_graphs", "Decodes for which llama.cpp kept the graph of the decode before."),
    "padding_rows": ("padding_rows", "Rows that were decoded only to give a decode its shape."),
    "committed_tokens": ("tokens", "Tokens committed by verifiers."),
    "takeovers": ("takeovers", "Requests that a verifier continued after another one."),
    "lost_to_successors": ("lost_stale", "Requests that a verifier lost because another had taken them over."),
    "lost_logs": ("lost_gap", "Requests that a verifier dropped because Redis had lost commits."),
    "lost_jobs": ("lost_gone", "Requests that a verifier dropped because Redis had lost them."),
    "poison_jobs": ("poison", "Requests given up after several verifiers failed on them."),
    "unread_jobs": ("unread", "Requests ended because their gateway was dead."),
    "stale_proposals": ("stale_proposals", "Proposals that came too late, or whose drafter missed a commit."),
}
# How a round may have ended, and the largest offset with its own label: no round has more drafts.
_ENDS: Final = ("plain", "accepted", "refused")
_LAST_OFFSET: Final = 32


class Metrics:
    """One registry per gateway, so that tests and processes never share counts."""

    def __init__(self, cards: Callable[[], Sequence[Card]], running: Callable[[], int]) -> None:
        """`cards` gives the last cards seen, `running` the number of requests in this gateway."""
        self.registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=self.registry)
        self.registry.register(FleetCollector(cards))
        self.queue_metrics = QueueMetrics()
        self.registry.register(self.queue_metrics)
        counter = partial(prometheus.Counter, registry=self.registry)
        histogram = partial(prometheus.Histogram, labelnames=["model"], registry=self.registry)
        self.requests = counter("draftmesh_requests", "Requests ended, by outcome.", ["model", "outcome"])
        self.errors = counter("draftmesh_errors", "Errors sent to clients, by error code.", ["code"])
        self.prompt_tokens = counter("draftmesh_prompt_tokens", "Prompt tokens of ended requests.", ["model"])
        self.generation_tokens = counter("draftmesh_generation_tokens", "Answer tokens of ended requests.", ["model"])
        self.first_token = histogram(
            "draftmesh_time_to_first_token_seconds", "From the request to its first token.", buckets=_SECONDS
        )
        self.inter_token = histogram(
            "draftmesh_inter_token_latency_seconds",
            "Time per token after the first, one observation per commit.",
            buckets=_GAPS,
        )
        self.duration = histogram(
            "draftmesh_e2e_request_latency_seconds", "From the request to its end.", buckets=_SECONDS
        )
        self.watch("draftmesh_num_requests_running", "Requests in this gateway now.", running)
        self.watch(
            "draftmesh_lost_log_lines", "Lines of this gateway's log that could not be written.", logs.lost_lines
        )

    def watch(self, name: str, meaning: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is read at each scrape."""
        prometheus.Gauge(name, meaning, registry=self.registry).set_function(value)

    def text(self) -> bytes:
        """The exposition text."""
        return prometheus.generate_latest(self.registry)


@dataclass(frozen=True, slots=True)
class _Counts:
    model: str
    counters: dict[str, int]
    positions: tuple[int, ...]
    starts: tuple[RoundStarts, ...]


class FleetCollector(Collector):
    """The verifiers' own counters, summed by model. A verifier that left keeps its share, so that sums never fall."""

    def __init__(self, cards: Callable[[], Sequence[Card]]) -> None:
        self._cards = cards
        self._seen: dict[str, _Counts] = {}

    def collect(self) -> Iterator[Metric]:
        cards = self._cards()
        verifiers = [card for card in cards if isinstance(card, VerifierCard)]
        for card in verifiers:
            self._seen[card.id] = _Counts(card.model, dict(card.counters), card.accepted_per_position, card.starts)
        yield from self._counters()
        yield self._starts()
        yield from _gauges(verifiers)
        drafters = GaugeMetricFamily("draftmesh_drafters", "Drafters that are alive.")
        drafters.add_metric([], sum(isinstance(card, DrafterCard) for card in cards))
        yield drafters

    def _counters(self) -> Iterator[Metric]:
        sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
        positions: defaultdict[str, Counter[int]] = defaultdict(Counter)
        for seen in self._seen.values():
            sums[seen.model].update(seen.counters)
            positions[seen.model].update(dict(enumerate(seen.positions)))
        for name, (key, help_text) in _FLEET.items():
            family = CounterMetricFamily(f"draftmesh_{name}", help_text, labels=["model"])
            for model, counts in sums.items():
                family.add_metric([model], counts[key])
            yield family
        family = CounterMetricFamily(
            "draftmesh_spec_decode_num_accepted_tokens_per_pos",
            "Draft tokens accepted, by their position in the draft.",
            labels=["model", "position"],
        )
        for model, by_position in positions.items():
            for position, count in sorted(by_position.items()):
                family.add_metric([model, str(position)], count)
        yield family

    def _starts(self) -> Metric:
        family = CounterMetricFamily(
            "draftmesh_round_starts",
            "Rounds by what ended the round before, at which offset it was refused, and whether drafts were ready.",
            labels=["model", "after", "offset", "drafts"],
        )
        sums: Counter[tuple[str, str, str, str]] = Counter()
        for seen in self._seen.values():
            for start in seen.starts:
                after = start.after if start.after in _ENDS else "other"
                place = (seen.model, after, str(min(start.offset, _LAST_OFFSET)))
                sums[*place, "ready"] += start.ready
                sums[*place, "none"] += start.rounds - start.ready
        for labels, count in sorted(sums.items()):
            family.add_metric(labels, count)
        return family


def _gauges(verifiers: Sequence[VerifierCard]) -> Iterator[Metric]:
    active = GaugeMetricFamily("draftmesh_active_requests", "Requests in verifiers now.", labels=["model"])
    slots = GaugeMetricFamily("draftmesh_slots", "Requests that verifiers serve at once.", labels=["model"])
    speed = GaugeMetricFamily("draftmesh_tokens_per_second", "Tokens committed per second now.", labels=["model"])
    alive = GaugeMetricFamily("draftmesh_verifiers", "Verifiers that are alive.", labels=["model"])
    refused = GaugeMetricFamily(
        "draftmesh_drafters_refused", "Drafters refused because their vocabulary is another one.", labels=["model"]
    )
    level = InfoMetricFamily("draftmesh_exactness", "How exact answers are: strict or law.", labels=["model"])
    models: defaultdict[str, list[VerifierCard]] = defaultdict(list)
    for card in verifiers:
        models[card.model].append(card)
    for model, cards in sorted(models.items()):
        active.add_metric([model], sum(len(card.requests) for card in cards))
        slots.add_metric([model], sum(card.slots for card in cards))
        speed.add_metric([model], sum(card.tokens_per_second for card in cards))
        alive.add_metric([model], len(cards))
        refused.add_metric([model], len({name for card in cards for name, _ in card.refused}))
        for exactness in sorted({card.exactness for card in cards}):
            level.add_metric([model], {"level": exactness})
    yield from (active, slots, speed, alive, refused, level)
