"""The page of metrics, from a gateway's own registry."""

from collections.abc import Iterator
from typing import Any

from prometheus_client.metrics import MetricWrapperBase

from reference.markdown import code, codes, page, table
from reference.source import calls
from services.gateway.monitoring.metrics import FleetCollector, Metrics


def text() -> str:
    """The page."""
    rows = sorted(set(_rows()))  # a gauge of `Metrics` itself is both in it and asked
    return page(
        "Metrics",
        "At every gateway's `/metrics`, in Prometheus' text format, beside `process_*` of the gateway itself. Metrics"
        " of the fleet are the same at every gateway: combine them with `max`. Counters end with `_total`, and"
        " histograms have `_bucket`, `_sum` and `_count`.",
        table(("metric", "type", "labels", "meaning"), rows),
    )


def _rows() -> Iterator[tuple[str, str, str, str]]:
    metrics = Metrics(list, int)
    for value in vars(metrics).values():
        if isinstance(value, MetricWrapperBase):
            for family in value.describe():
                yield _row(family, getattr(value, "_labelnames", ()))
    for collector in (FleetCollector(list), metrics.queue_metrics):
        for family in collector.collect():
            yield _row(family, getattr(family, "_labelnames", ()))
    for call in calls():  # gauges that are asked, wherever they are registered
        if call.name == "watch" and call.argument(0, "name"):
            yield code(call.argument(0, "name")), "gauge", "", call.argument(1, "meaning")


def _row(family: Any, labels: Any) -> tuple[str, str, str, str]:
    ending = {"counter": "_total", "info": "_info"}.get(family.type, "")
    return code(f"{family.name}{ending}"), family.type, codes(labels), family.documentation
