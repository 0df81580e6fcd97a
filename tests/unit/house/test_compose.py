"""compose.yaml is valid, its commands and variables are ours, and its containers stop and start as the services do."""

import json
import os
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml
from typer.main import get_command

from shared.process.lifecycle import CLOSING_S
from shared.settings.options import DEFAULT_DRAIN_S
from tests.command_lines import parser, variables

ROOT = Path(__file__).parents[3]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
MONITORING = {"prometheus", "grafana"}
OURS = sorted(SERVICES.keys() - {"valkey", "proxy", *MONITORING})
GATEWAYS = ("gateway", "gateways")
OTHERS = [name for name in OURS if name not in GATEWAYS]  # what works with models
NOT_OURS = {"HF_TOKEN"}  # variables that another program reads


def default(value: object) -> str:
    """What `${NAME:-default}` is when nobody set NAME."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(value))


def parsed(name: str, monkeypatch: pytest.MonkeyPatch, **chosen: str) -> dict[str, Any]:
    """The options of a service as compose would start it for a user who set `chosen`."""
    command, *arguments = SERVICES[name]["command"]
    for variable in [variable for variable in os.environ if variable.startswith("DRAFTMESH_")]:
        monkeypatch.delenv(variable)
    for variable, value in SERVICES[name]["environment"].items():
        monkeypatch.setenv(variable, chosen.get(variable, default(value)))
    return dict(parser(command).make_context(command, list(arguments)).params)


def test_the_file_follows_the_compose_specification() -> None:
    schema = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    jsonschema.validate(COMPOSE, json.loads(schema.read_text()))


@pytest.mark.parametrize("name", OURS)
def test_a_command_is_one_that_draftmesh_accepts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert SERVICES[name]["command"][0] == name.partition("-")[0].removesuffix("s")
    assert parsed(name, monkeypatch)["redis"] == "redis://valkey:6379/0"


@pytest.mark.parametrize("name", OTHERS)
def test_models_and_devices_are_the_users_to_choose(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {
        "DRAFTMESH_TARGET_MODEL": "big.gguf",
        "DRAFTMESH_TARGET_DEVICE": "cuda:1",
        "DRAFTMESH_DRAFT_MODEL": "small.gguf",
        "DRAFTMESH_DRAFT_DEVICE": "cuda:2",
    }
    options = parsed(name, monkeypatch, **chosen)
    assert set(chosen.values()) & set(map(str, options.values())) == (
        {"big.gguf", "cuda:1"} if name.startswith("verifier") else {"small.gguf", "cuda:2"}
    )


def test_threads_of_target_and_drafters_are_the_users_to_choose_each(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OURS:
        role = {"verifier": "TARGET", "drafter": "DRAFT"}.get(name.partition("-")[0])
        if role:
            assert SERVICES[name]["environment"]["DRAFTMESH_THREADS"] == f"${{DRAFTMESH_{role}_THREADS:-0}}"
            assert parsed(name, monkeypatch)["threads"] == 0, "a share of the cores"


def test_without_variables_the_default_model_answers_and_the_drafter_looks_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parsed("verifier", monkeypatch)["target_model"] == "default"
    assert parsed("drafter", monkeypatch)["draft_model"] == ""


def test_a_gateway_that_is_published_beyond_this_machine_wants_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = SERVICES["gateway"]["environment"]
    assert environment["DRAFTMESH_PUBLISHED_HOST"] == SERVICES["gateway"]["ports"][0].removesuffix(
        ":${GATEWAY_PORT:-7071}:7071"
    )
    options = parsed("gateway", monkeypatch)
    assert (options["published_host"], options["no_auth"], options["api_key"]) == ("127.0.0.1", False, [])


@pytest.mark.parametrize("name", OURS)
def test_every_variable_belongs_to_an_option(name: str) -> None:
    known = variables(parser(SERVICES[name]["command"][0]))
    assert set(SERVICES[name]["environment"]) - NOT_OURS <= set(known)


@pytest.mark.parametrize("name", OURS)
def test_a_container_may_drain_before_it_is_killed(name: str) -> None:
    grace_s = int(default(SERVICES[name]["stop_grace_period"]).removesuffix("s"))
    drain_s = float(default(SERVICES[name]["environment"].get("DRAFTMESH_DRAIN", DEFAULT_DRAIN_S)))
    assert grace_s >= drain_s + CLOSING_S
    if name in GATEWAYS:
        assert drain_s == 600


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_no_container_runs_as_root_or_gains_rights(name: str) -> None:
    service = SERVICES[name]
    assert service.get("user", "draftmesh") not in ("root", "0")
    assert not service.get("privileged")
    assert service["cap_drop"] == ["ALL"]
    assert service["read_only"] is True


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_no_container_fills_the_memory_or_the_disk_of_its_host(name: str) -> None:
    service = SERVICES[name]
    assert re.fullmatch(r"\d+[mg]", default(service["mem_limit"]))
    assert service["logging"] == {"driver": "json-file", "options": {"max-size": "10m", "max-file": "3"}}


def test_valkey_refuses_what_it_has_no_room_for() -> None:
    command = list(map(default, SERVICES["valkey"]["command"]))
    settings = dict(zip(command[1::2], command[2::2], strict=True))
    assert settings["--maxmemory-policy"] == "noeviction"
    assert settings["--maxmemory"] == "512mb"
    assert default(SERVICES["valkey"]["mem_limit"]) == "1g", "room for buffers beside the keys"


def test_every_variable_has_a_default() -> None:
    """A fresh Docker host has no file .env, and compose would put an empty text in its place."""
    assert re.findall(r"\$\{\w+(?!\w|:-)", (ROOT / "compose.yaml").read_text()) == []


def test_one_service_builds_each_image_and_the_others_never_pull_it() -> None:
    for tag in {SERVICES[name]["image"] for name in OURS}:
        having = [SERVICES[name] for name in OURS if SERVICES[name]["image"] == tag]
        assert len([service for service in having if "build" in service]) == 1
        assert [service["pull_policy"] for service in having if "build" not in service] == ["never"] * (len(having) - 1)


@pytest.mark.parametrize("name", OTHERS)
def test_a_container_is_healthy_once_its_model_is_loaded(name: str) -> None:
    file = SERVICES[name]["environment"]["DRAFTMESH_READY_FILE"]
    assert SERVICES[name]["healthcheck"]["test"] == ["CMD-SHELL", f"find {file} -mmin -1 | grep -q ."]
    assert Path(file).parent == Path(*SERVICES[name]["tmpfs"]), "one of its own for each container"


@pytest.mark.parametrize("name", OTHERS)
def test_cores_folders_and_their_owner_are_the_users_to_choose(name: str) -> None:
    service = SERVICES[name]
    cores = {"verifier": "TARGET", "drafter": "DRAFT"}[service["command"][0]]
    assert service["cpuset"] == f"${{{cores}_CPUS:-}}"
    assert service["user"] == "${PUID:-10001}:${PGID:-10001}"
    assert service["volumes"] == ["${MODELS:-models}:/models", "${CACHE:-cache}:/cache"]
    assert {"models", "cache", "keys"} <= set(COMPOSE["volumes"])


@pytest.mark.parametrize("name", GATEWAYS)
def test_the_keys_are_a_folder_because_a_mounted_file_is_not_the_one_that_an_editor_saves(name: str) -> None:
    assert SERVICES[name]["volumes"] == ["${KEYS:-keys}:/keys:ro"]
    assert SERVICES[name]["environment"]["DRAFTMESH_API_KEYS_FILE"] == "${DRAFTMESH_API_KEYS_FILE:-}"


def test_the_proxy_stands_where_the_one_gateway_would() -> None:
    assert SERVICES["proxy"]["ports"] == SERVICES["gateway"]["ports"]
    assert "ports" not in SERVICES["gateways"]
    assert SERVICES["proxy"]["profiles"] == SERVICES["gateways"]["profiles"] == ["proxy"]
    [mount] = SERVICES["proxy"]["volumes"]
    text = (ROOT / mount.partition(":")[0]).read_text()
    assert " gateways:7071 " in text
    assert "bind :7071\n" in text
    assert "option httpchk GET /readyz\n" in text


def test_the_image_switches_to_a_user_of_its_own() -> None:
    text = (ROOT / "Dockerfile").read_text()
    users = re.findall(r"^USER (\S+)", text, re.MULTILINE)
    assert users == ["10001"]
    assert f"useradd --uid {users[0]} --gid {users[0]} " in text, "what PUID and PGID are by default"
    assert text.index("\nUSER ") > text.rindex("\nFROM ")


@pytest.mark.parametrize("name", [name for name in OURS if name != "gateway"])
def test_all_but_the_published_gateway_can_be_scaled(name: str) -> None:
    assert not {"container_name", "ports"} & set(SERVICES[name])


@pytest.mark.parametrize("name", OURS)
def test_a_service_waits_for_a_healthy_valkey(name: str) -> None:
    assert SERVICES[name]["depends_on"]["valkey"]["condition"] == "service_healthy"
    assert "healthcheck" in SERVICES["valkey"]


@pytest.mark.parametrize("backend", ["cuda", "rocm", "vulkan"])
def test_a_gpu_service_has_its_profile_its_image_and_its_devices(backend: str) -> None:
    for service in ("verifier", "drafter"):
        variant = SERVICES[f"{service}-{backend}"]
        assert variant["profiles"] == [backend]
        assert variant["image"] == f"draftmesh:{backend}"
        # By number: an image need not know the host's groups by name.
        assert all(default(group).isdigit() for group in variant.get("group_add", []))
        assert "devices" in variant or variant["deploy"]["resources"]["reservations"]["devices"]


def test_nothing_needs_a_profile_on_a_machine_without_a_gpu() -> None:
    assert {name for name in SERVICES if "profiles" not in SERVICES[name]} == {
        "valkey",
        "gateway",
        "verifier",
        "drafter",
    }


def test_every_backend_has_its_stages_in_the_dockerfile() -> None:
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    backends = {SERVICES[name]["build"]["args"]["BACKEND"] for name in OURS if "build" in SERVICES[name]}
    assert backends == {"cpu", "cuda", "rocm", "vulkan"}
    for name in OURS:
        if "build" in SERVICES[name]:
            assert SERVICES[name]["image"] == f"draftmesh:{SERVICES[name]['build']['args']['BACKEND']}"
    assert {f"{kind}-{backend}" for kind in ("build", "run") for backend in backends} <= stages


@pytest.mark.parametrize("service", ["verifier", "drafter", "gateway"])
def test_up_and_the_services_have_the_same_defaults(service: str) -> None:
    """`up` hands every option on, so a default of its own would silently replace the service's."""
    from services.launcher.cli import app

    up = variables(get_command(app).commands["up"])  # type: ignore[attr-defined]
    theirs = variables(parser(service))
    per_model = {f"DRAFTMESH_{role}_{what}" for role in ("TARGET", "DRAFT") for what in ("MODEL", "DEVICE")}
    per_model.add("DRAFTMESH_CHAT_TEMPLATE")
    shared = (set(up) & set(theirs)) - {"DRAFTMESH_REDIS"} - per_model
    assert {name: up[name].default for name in shared} == {name: theirs[name].default for name in shared}
    if service == "verifier":
        assert up["DRAFTMESH_TARGET_MODEL"].default == [theirs["DRAFTMESH_TARGET_MODEL"].default]


def test_images_serve_old_cards_and_hold_no_compilers() -> None:
    text = (ROOT / "Dockerfile").read_text()
    [architectures] = re.findall(r"^ARG CUDA_ARCHITECTURES=(\S+)", text, re.MULTILINE)
    assert architectures.split(";")[0] == "61", "Pascal"
    finals = dict(re.findall(r"^FROM (\S+) AS run-(\w+)", text, re.MULTILINE))
    assert set(map(str, finals)) == {
        "python:3.12-slim-trixie",
        "run-cpu",
        "nvidia/cuda:12.8.1-runtime-ubuntu24.04",
        "ubuntu:24.04",
    }
