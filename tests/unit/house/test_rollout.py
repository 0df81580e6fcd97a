"""A rollout in a cluster loses no request: what the manifests grant adds up, and requests wait as long as it takes."""

from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from services.gateway.generation.generator import Generator
from services.gateway.generation.lost_models import LostModels
from services.gateway.models.directory import ModelDirectory
from shared.fleet.registry import Registry
from shared.process.lifecycle import CLOSING_S, GRACE_S
from shared.process.ready_file import TOUCH_S
from tests.service.scripted import card
from tests.unit.gateway.generation.test_lost_models import Answers, Cards

KUBERNETES = Path(__file__).parents[3] / "deploy/kubernetes"
OVERLAYS = KUBERNETES / "overlays"


def one(folder: str, file: str, kind: str) -> dict[str, Any]:
    loaded = yaml.safe_load_all((KUBERNETES / folder / file).read_text())
    return next(document for document in loaded if document["kind"] == kind)


def pod(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = one("base", f"{name}.yaml", "Deployment")["spec"]["template"]["spec"]
    return spec


def container(name: str) -> dict[str, Any]:
    [found] = pod(name)["containers"]
    return dict(found)


def variables(name: str) -> dict[str, str]:
    """What the base sets for all gateways, or for all that work with models."""
    for made in yaml.safe_load((KUBERNETES / "base/kustomization.yaml").read_text())["configMapGenerator"]:
        if made["name"] == name:
            return dict(literal.split("=", 1) for literal in made["literals"])
    raise AssertionError(name)


def allowed_s(probe: dict[str, Any]) -> float:
    return float(probe["periodSeconds"] * probe["failureThreshold"])


GATEWAY = variables("draftmesh-gateway")
DRAIN_S = float(GATEWAY["DRAFTMESH_DRAIN"])
ABSENCE_S = float(GATEWAY["DRAFTMESH_ABSENCE_GRACE"])
LOADING_S = allowed_s(container("verifier")["startupProbe"])


def test_a_gateway_that_is_replaced_cuts_no_answer_that_may_still_end() -> None:
    assert float(GATEWAY["DRAFTMESH_REQUEST_TIMEOUT"]) <= DRAIN_S
    before_s = container("gateway")["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod("gateway")["terminationGracePeriodSeconds"] >= before_s + DRAIN_S + CLOSING_S
    assert container("gateway")["envFrom"][0] == {"configMapRef": {"name": "draftmesh-gateway"}}
    strategy = one("base", "gateway.yaml", "Deployment")["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxUnavailable": 0, "maxSurge": 1}


def test_requests_wait_for_longer_than_a_verifier_may_take_to_end_and_to_load() -> None:
    assert ABSENCE_S >= LOADING_S + GRACE_S
    assert one("base", "verifier.yaml", "Deployment")["spec"]["progressDeadlineSeconds"] > LOADING_S


async def test_a_request_outlives_the_replacement_of_the_only_verifier() -> None:
    """By a fake clock: the old one has gone, and the new one is ready at the last moment that its probe allows."""
    moments = [0.0, 1.0, GRACE_S, GRACE_S + LOADING_S, GRACE_S + LOADING_S + 1.0]
    cards, answers = Cards(card(model="big")), Answers(big=1)
    directory = ModelDirectory(cast(Registry, cards), fresh_s=0.0)
    generator = cast(Generator, cast(Any, answers))
    lost_models = LostModels(directory, generator, ABSENCE_S, clock=lambda: moments.pop(0))
    await lost_models.look()
    cards.living = []
    for _ in range(3):
        await lost_models.look()
    assert not answers.ended
    cards.living = [card(model="big")]
    await lost_models.look()
    assert not moments
    assert not answers.ended


@pytest.mark.parametrize("name", ["verifier", "drafter"])
def test_probes_know_when_a_model_is_loaded(name: str) -> None:
    """`shared.process.ready_file` makes the file once the process serves, and removes it when it drains."""
    found = container(name)
    [file] = [one["value"] for one in found["env"] if one["name"] == "DRAFTMESH_READY_FILE"]
    there = {"exec": {"command": ["test", "-f", file]}, "periodSeconds": 5}
    assert found["startupProbe"] == {**there, "failureThreshold": 360}
    assert found["readinessProbe"] == {**there, "failureThreshold": 1}
    assert found["livenessProbe"]["exec"]["command"][-1] == f"find {file} -mmin -2 | grep -q ."
    assert TOUCH_S * 10 < 2 * 60, "a loop that is late now and then is no reason for a restart"
    [mount] = [mount["name"] for mount in found["volumeMounts"] if mount["mountPath"] == str(Path(file).parent)]
    assert {"name": mount, "emptyDir": {}} in pod(name)["volumes"], "every pod has a file of its own"


@pytest.mark.parametrize("name", ["verifier", "drafter"])
def test_models_are_fetched_once_for_all_pods(name: str) -> None:
    claim = one("base", "models.yaml", "PersistentVolumeClaim")
    [models] = [volume for volume in pod(name)["volumes"] if volume["name"] == "models"]
    assert models["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


def test_a_cluster_with_one_gpu_can_replace_its_verifier() -> None:
    [patch] = yaml.safe_load((OVERLAYS / "cuda/roll.yaml").read_text())
    assert patch["value"] == {"maxUnavailable": 1, "maxSurge": 0}


def test_a_drafter_that_looks_up_takes_no_gpu() -> None:
    assert variables("draftmesh-models")["DRAFTMESH_DRAFT_MODEL"] == ""
    patches = yaml.safe_load((OVERLAYS / "cuda/kustomization.yaml").read_text())["patches"]
    assert {(patch["target"]["name"], patch["path"]) for patch in patches} == {
        ("draftmesh-verifier", "gpu.yaml"),
        ("draftmesh-verifier", "roll.yaml"),
    }
    component = yaml.safe_load((KUBERNETES / "components/draft-gpu/kustomization.yaml").read_text())
    assert component["patches"][0]["target"]["name"] == "draftmesh-drafter"
