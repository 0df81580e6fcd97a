"""The units are valid, start what the command line knows, drop what rights they can, and drain in time."""

import shutil
import subprocess
from pathlib import Path

import pytest

from services.launcher.fleet import access_rules
from shared.process.lifecycle import CLOSING_S
from shared.settings import command_line
from shared.settings.options import DEFAULT_DRAIN_S
from tests.command_lines import SERVICES, options

USERS = Path(__file__).parents[3] / "deploy/systemd/draftmesh.conf"
UNITS = sorted((Path(__file__).parents[3] / "deploy/systemd").glob("*.service"))


def section(unit: Path) -> dict[str, list[str]]:
    """A unit's settings, all sections in one: none of ours has a name twice in two of them."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def service_of(unit: Path) -> str:
    return unit.stem.removeprefix("draftmesh-").removesuffix("@")


def drain_s(found: dict[str, list[str]]) -> float:
    """How long the gateway of a unit lets answers finish; other services hand over or leave."""
    set_here = dict(word.split("=", 1) for line in found["Environment"] for word in line.split())
    return float(set_here.get("DRAFTMESH_DRAIN", DEFAULT_DRAIN_S))


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units beside an installation that is there."""
    command = tmp_path / "draftmesh"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/draftmesh/bin/draftmesh", str(command)))
    return tmp_path


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd to ask")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_finds_no_fault_with_a_unit(unit: Path, installed: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", f"./{unit.name}"],
        cwd=installed,
        capture_output=True,
        text=True,
        check=False,
    )
    # Of the rest it warns that other units of this machine are odd.
    assert not [line for line in done.stderr.splitlines() if "draftmesh" in line]
    exposure = ["systemd-analyze", "security", "--offline=true", "--threshold=25", f"./{unit.name}"]
    assert subprocess.run(exposure, cwd=installed, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_starts_a_service_with_options_that_it_has(unit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [line] = section(unit)["ExecStart"]
    command, service, *arguments = line.split()
    assert command == "/opt/draftmesh/bin/draftmesh"
    assert service == service_of(unit)
    assert options(service, arguments, monkeypatch)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_has_time_to_drain_and_no_rights(unit: Path) -> None:
    found = section(unit)
    assert float(found["TimeoutStopSec"][0]) >= drain_s(found) + CLOSING_S
    assert found["RestartPreventExitStatus"] == [str(command_line.BAD_OPTION)]
    assert found["DynamicUser"] == found["NoNewPrivileges"] == found["ProtectHome"] == ["yes"]
    assert found["ProtectSystem"] == ["strict"]
    assert found["CapabilityBoundingSet"] == [""]


def test_a_key_that_is_removed_stops_working_while_the_gateway_runs() -> None:
    """systemd copies a credential at the start, and the gateway would go on with the copy."""
    [unit] = [unit for unit in UNITS if service_of(unit) == "gateway"]
    found = section(unit)
    assert not {"LoadCredential", "LoadCredentialEncrypted", "SetCredential"} & set(found)
    [line] = found["ExecStart"]
    assert line.endswith(" --api-keys-file /etc/draftmesh/api-keys")
    [group] = [line.split()[1] for line in USERS.read_text().splitlines() if line.startswith("g ")]
    assert found["SupplementaryGroups"] == [group]


def test_answers_have_as_long_to_finish_as_the_unit_allows() -> None:
    [unit] = [unit for unit in UNITS if service_of(unit) == "gateway"]
    found = section(unit)
    assert drain_s(found) == 600 == float(found["TimeoutStopSec"][0]) - 10


def test_every_service_has_a_unit_and_a_file_that_acl_writes() -> None:
    assert {service_of(unit) for unit in UNITS} == set(SERVICES)
    for unit in UNITS:
        assert f"/etc/draftmesh/{service_of(unit)}.env" in section(unit)["EnvironmentFile"]
    assert set(SERVICES) <= set(access_rules.SERVICES)
