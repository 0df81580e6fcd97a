"""Alerts and dashboard ask for metrics that a gateway gives, by labels that these have, and name real runbooks."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from services.gateway.errors import ApiError
from services.gateway.monitoring.metrics import Metrics
from shared.wire.broker import Broker
from shared.wire.messages import RoundStarts
from tests import promql
from tests.service.scripted import card
from tests.toys import drafter_card
from tests.unit.gateway.monitoring.test_queue_metrics import Redis

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
GROUPS: list[Any] = yaml.safe_load((DEPLOY / "prometheus/alerts.yaml").read_text())["groups"]
ALERTS: list[Any] = [rule for group in GROUPS for rule in group["rules"]]
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/draftmesh.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
SCALING = DEPLOY / "kubernetes/components/monitoring/lag.yaml"
# Of Prometheus itself: whether it could scrape, and what it adds to every sample.
PROMETHEUS: dict[str, set[str]] = {"up": set()}
ADDED = {"job", "instance"}


def expressions() -> Iterator[tuple[str, str]]:
    for alert in ALERTS:
        yield alert["alert"], alert["expr"]
    for panel in PANELS:
        for target in panel["targets"]:
            # Grafana puts these in before it asks.
            asked = target["expr"].replace("$__rate_interval", "1m").replace("$model", ".*")
            yield panel["title"], asked
    for operation in yaml.safe_load(SCALING.read_text()):
        yield "lag.yaml", operation["value"]["metadata"]["query"]


EXPRESSIONS = list(expressions())


@pytest.fixture(scope="module")
def exposed() -> dict[str, set[str]]:
    """The labels of each sample that the gateway of a busy fleet gives."""
    starts = (RoundStarts(after="accepted", offset=0, rounds=2, ready=1),)
    metrics = Metrics(lambda: [card(starts=starts), drafter_card("d")], lambda: 1)
    asyncio.run(metrics.queue_metrics.look(Broker(cast(Any, Redis()), cast(Any, None)), [card()]))
    for outcome in ("stop", "refused"):
        metrics.requests.labels("smol", outcome).inc()
    metrics.errors.labels("queue_full").inc()
    for counter in (metrics.prompt_tokens, metrics.generation_tokens):
        counter.labels("smol").inc()
    for histogram in (metrics.first_token, metrics.inter_token, metrics.duration):
        histogram.labels("smol").observe(1)
    found: dict[str, set[str]] = dict(PROMETHEUS)
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS)
def test_what_is_asked_for_exists(exposed: dict[str, set[str]], where: str, expression: str) -> None:
    labels = set(ADDED)
    for name, wanted in promql.selectors(expression):
        assert name in exposed, name
        assert wanted.keys() <= exposed[name] | ADDED, name
        labels |= exposed[name]
    assert promql.grouped(expression) <= labels


def test_a_metric_that_is_gone_would_be_noticed(exposed: dict[str, set[str]]) -> None:
    asked = {name for _, expression in EXPRESSIONS for name, _ in promql.selectors(expression)}
    assert len(asked) > 25
    assert "draftmesh_rounds" not in exposed
    with pytest.raises(ValueError, match="parenthesis"):
        promql.nodes("sum(rate(draftmesh_rounds_total[5m])")


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS)
def test_what_every_gateway_shows_of_the_fleet_is_not_added_up(where: str, expression: str) -> None:
    """Two gateways show the same verifiers, so a sum over gateways would double them."""
    own = re.compile(r"draftmesh_(requests|errors|num_requests_running|prompt_tokens|generation_tokens)|.*_bucket$|up$")
    assert [name for name in promql.added_up(expression) if not own.match(name)] == []


def test_a_sum_over_gateways_would_be_noticed() -> None:
    assert promql.added_up("sum by (a) (rate(fleet[1m])) / sum(max by (b) (rate(other[1m])))") == ["fleet"]


def test_outcomes_in_alerts_are_ones_that_happen() -> None:
    from services.gateway.http.account import Account
    from shared.process.spans import Tracer

    known = {"stop", "length", "tool_calls", "disconnected"}
    for status in (400, 429, 499, 500, 503, 504):
        account = Account(Metrics(list, lambda: 0), "r", "a", Tracer().span("s"))
        account.fail(ApiError(status, "m"))
        known.add(account._outcome)
    for _, expression in EXPRESSIONS:
        for name, wanted in promql.selectors(expression):
            if name == "draftmesh_requests_total" and "outcome" in wanted:
                assert set(wanted["outcome"].split("|")) <= known


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_says_how_bad_it_is_and_what_to_do(alert: dict[str, Any]) -> None:
    assert set(alert) <= {"alert", "expr", "for", "labels", "annotations"}
    assert alert["labels"]["severity"] in ("page", "ticket", "info")
    assert re.fullmatch(r"\d+[smh]", alert.get("for", "0s"))
    assert alert["annotations"]["summary"].endswith(".")
    page, _, anchor = alert["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^#+ (\w+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor == alert["alert"].lower()
    assert alert["alert"] in headings


def test_no_runbook_is_for_an_alert_that_is_gone() -> None:
    headings = re.findall(r"^### (Draftmesh\w+)$", (ROOT / "docs/operations.md").read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(alert["alert"] for alert in ALERTS)


def test_kubernetes_gets_the_same_rules() -> None:
    rules = yaml.safe_load((DEPLOY / "kubernetes/components/monitoring/rules.yaml").read_text())
    assert rules["spec"]["groups"] == GROUPS


def test_panels_do_not_overlap_and_fill_the_width() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_dashboard_and_provisioning_agree() -> None:
    provisioned = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yaml").read_text())
    [source] = provisioned["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert {variable["name"] for variable in DASHBOARD["templating"]["list"]} == {"source", "model"}
    for panel in PANELS:
        assert panel["datasource"]["uid"] == "${source}"
    scraped = yaml.safe_load((DEPLOY / "prometheus/prometheus.yaml").read_text())["scrape_configs"]
    assert [one["job_name"] for one in scraped] == ["draftmesh"]
    assert scraped[0]["static_configs"] == [{"targets": ["gateway:7071"]}]
