"""Manifests are valid, start what the command line knows, drop what rights they can, and drain in time."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate
import pytest
import redis
import yaml
from typer.main import get_command

from services.gateway.table import ROUTES
from shared.model import model_source
from shared.process.lifecycle import GRACE_S
from shared.wire import keys
from tests.command_lines import SERVICES, options, parser, variables
from tests.server import valkey_server

ROOT = Path(__file__).parents[3]
KUBERNETES = ROOT / "deploy/kubernetes"
OVERLAYS = sorted(folder.name for folder in (KUBERNETES / "overlays").iterdir())
RELEASE = "1.34"  # Kubernetes' whose schemas are asked


def documents(folder: str) -> list[dict[str, Any]]:
    files = sorted((KUBERNETES / folder).glob("*.yaml"))
    loaded = [list(yaml.safe_load_all(file.read_text())) for file in files]
    return [one for each in loaded for one in each if isinstance(one, dict) and "Kustom" not in str(one.get("kind"))]


BASE = [one for one in documents("base") if one["kind"] != "Component"]
SCALING = [one for one in documents("components/scaling") if one["kind"] != "Component"]
WORKLOADS = [one for one in BASE if one["kind"] in ("Deployment", "StatefulSet")]
PODS = {one["metadata"]["name"].removeprefix("draftmesh-"): one["spec"]["template"]["spec"] for one in WORKLOADS}

TRIGGER = {
    "type": "object",
    "required": ["type", "metadata"],
    "additionalProperties": False,
    "properties": {
        "type": {"enum": ["redis", "prometheus"]},
        "metricType": {"enum": ["AverageValue", "Value"]},
        "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
        "authenticationRef": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
    },
}
SCALED_OBJECT = {
    "type": "object",
    "required": ["scaleTargetRef", "triggers"],
    "additionalProperties": False,
    "properties": {
        "scaleTargetRef": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
        **{
            name: {"type": "integer", "minimum": 0}
            for name in ("minReplicaCount", "maxReplicaCount", "pollingInterval", "cooldownPeriod")
        },
        "advanced": {"type": "object"},
        "triggers": {"type": "array", "minItems": 1, "items": TRIGGER},
    },
}
# What a trigger of each kind cannot be without.
METADATA = {"redis": {"address", "listName", "listLength"}, "prometheus": {"serverAddress", "query", "threshold"}}


@pytest.mark.parametrize("document", BASE, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_kubernetes_accepts_what_is_in_the_base(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, RELEASE, strict=True)


def built(overlay: str) -> list[dict[str, Any]]:
    command = ["kubectl", "kustomize", str(KUBERNETES / "overlays" / overlay)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [one for one in yaml.safe_load_all(done.stdout) if one]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl to build overlays with")
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kubernetes_accepts_what_an_overlay_makes(overlay: str) -> None:
    found = built(overlay)
    for document in found:
        if document["apiVersion"].startswith(("keda.sh", "monitoring.coreos.com")):
            continue  # not Kubernetes' own; KEDA's have a test of theirs
        kubernetes_validate.validate(document, RELEASE, strict=True)
    for document in found:
        if document["kind"] == "ScaledObject":
            jsonschema.validate(document["spec"], SCALED_OBJECT)
            for trigger in document["spec"]["triggers"]:
                assert METADATA[trigger["type"]] <= set(trigger["metadata"])
    images = {one["image"] for each in found for one in containers(each)}
    assert images == {f"draftmesh:{overlay}", "valkey/valkey:9.0-alpine"}


def containers(document: dict[str, Any]) -> list[dict[str, Any]]:
    template = document.get("spec", {}).get("template", {})
    return list(template.get("spec", {}).get("containers", []))


def references(folder: Path) -> Iterator[Path]:
    """Everything that the kustomizations below a folder name, as paths."""
    for file in folder.rglob("kustomization.yaml"):
        content = yaml.safe_load(file.read_text())
        named = [*content.get("resources", []), *content.get("components", [])]
        named += [patch["path"] for patch in content.get("patches", [])]
        named += [name for one in content.get("configMapGenerator", []) for name in one.get("files", [])]
        yield from (file.parent / name for name in named)


def test_kustomizations_name_files_that_are_there() -> None:
    found = list(references(ROOT / "deploy"))
    assert len(found) > 10
    assert [path for path in found if not path.exists()] == []
    assert [path for path in found if path.is_dir() and not (path / "kustomization.yaml").exists()] == []


@pytest.mark.parametrize("service", SERVICES)
def test_a_pod_starts_a_service_with_options_that_it_has(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    [container] = PODS[service]["containers"]
    name, *arguments = container["args"]
    assert name == container["name"] == service
    chosen = dict(literals()) if "configMapRef" in json.dumps(container["envFrom"]) else {}
    assert options(service, arguments, monkeypatch, **chosen)
    if service == "gateway":
        return
    # A name that no service knows would be ignored in silence.
    known = {name for one in SERVICES for name in variables(parser(one))}
    assert chosen.keys() <= known


def literals() -> Iterator[tuple[str, str]]:
    for file in KUBERNETES.rglob("kustomization.yaml"):
        for one in yaml.safe_load(file.read_text()).get("configMapGenerator", []):
            for literal in one.get("literals", []):
                name, _, value = literal.partition("=")
                yield name, value


@pytest.mark.parametrize("name", sorted(PODS))
def test_a_pod_drains_in_time_and_has_no_rights(name: str) -> None:
    pod = PODS[name]
    assert pod["terminationGracePeriodSeconds"] >= GRACE_S + 5 * (name == "gateway")
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    for container in pod["containers"]:
        rights = container["securityContext"]
        assert rights["allowPrivilegeEscalation"] is False
        assert rights["readOnlyRootFilesystem"] is True
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert set(container["resources"]["limits"]) == {"memory"}
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        claimed = {"data"} if name == "valkey" else set()
        assert mounted == {volume["name"] for volume in pod["volumes"]} | claimed


def test_probes_ask_routes_that_need_no_key() -> None:
    open_paths = {path for route in ROUTES if route.open for path in route.paths}
    [container] = PODS["gateway"]["containers"]
    probes = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert probes == {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz"}
    assert set(probes.values()) <= open_paths


def test_a_disruption_leaves_somebody_to_serve() -> None:
    budgets = {one["metadata"]["name"]: one["spec"] for one in BASE if one["kind"] == "PodDisruptionBudget"}
    assert set(budgets) == {"draftmesh-gateway", "draftmesh-verifier"}
    for one in WORKLOADS:
        if one["metadata"]["name"] in budgets:
            labels = one["spec"]["template"]["metadata"]["labels"]
            assert budgets[one["metadata"]["name"]]["selector"]["matchLabels"].items() <= labels.items()


def test_secrets_are_named_and_not_written_down() -> None:
    text = "\n".join(file.read_text() for file in KUBERNETES.rglob("*.yaml"))
    assert "kind: Secret\n" not in text
    named = set(re.findall(r"secretRef: \{name: ([\w-]+)\}|secretName: ([\w-]+)|name: (draftmesh-scaler)", text))
    secrets = {name for names in named for name in names if name}
    told = (ROOT / "docs/operations.md").read_text()
    assert len(secrets) == 6
    assert [name for name in secrets if f"generic {name}" not in told] == []


def test_keda_scales_what_is_there_by_what_redis_has() -> None:
    target = model_source.model_name(model_source.resolve(dict(literals())["DRAFTMESH_TARGET_MODEL"]))
    scaled = [one for one in SCALING if one["kind"] == "ScaledObject"]
    assert {one["spec"]["scaleTargetRef"]["name"] for one in scaled} == {"draftmesh-verifier", "draftmesh-drafter"}
    authentications = {one["metadata"]["name"] for one in SCALING if one["kind"] == "TriggerAuthentication"}
    for one in scaled:
        jsonschema.validate(one["spec"], SCALED_OBJECT)
        for trigger in one["spec"]["triggers"]:
            assert METADATA[trigger["type"]] <= set(trigger["metadata"])
            assert trigger["metadata"]["listName"] == keys.admitted(target)
            assert trigger["authenticationRef"]["name"] in authentications
    [lag] = yaml.safe_load((KUBERNETES / "components/monitoring/lag.yaml").read_text())
    jsonschema.validate(lag["value"], TRIGGER)
    assert f'model="{target}"' in lag["value"]["metadata"]["query"]
    verifier = next(one for one in scaled if one["metadata"]["name"] == "draftmesh-verifier")
    assert verifier["spec"]["triggers"][0]["metadata"]["listLength"] == dict(literals())["DRAFTMESH_PARALLEL"]


# ---------------------------------------------------------------- Valkey


def test_the_server_takes_its_configuration_and_never_evicts(tmp_path: Path) -> None:
    lines = [shlex.split(line, comments=True) for line in (ROOT / "deploy/valkey/valkey.conf").read_text().splitlines()]
    settings = {name: value for name, value in filter(None, lines) if name != "port"}
    words = [word for name, value in settings.items() for word in (f"--{name}", value)]
    with (
        valkey_server("127.0.0.1", *words, "--dir", str(tmp_path)) as server,
        redis.Redis.from_url(server.url) as client,
    ):
        found: dict[str, str] = client.config_get("*")
    assert found["maxmemory-policy"] == "noeviction"
    assert found["maxmemory"] == str(2 << 30)
    assert (found["appendonly"], found["appendfsync"], found["save"]) == ("yes", "everysec", "")
    assert found["timeout"] == "0"  # blocked reads are idle for long


def test_every_command_of_the_documentation_exists() -> None:
    from services.launcher.cli import app

    told = "\n".join((ROOT / "docs" / name).read_text() for name in ("operations.md", "trials.md"))
    commands = set(get_command(app).commands)  # type: ignore[attr-defined]
    assert set(re.findall(r"`draftmesh (\w+)", told)) <= commands
    assert set(re.findall(r"`make (\w+)", told)) <= set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M))
