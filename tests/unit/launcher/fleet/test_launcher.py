"""What `up` decides before it starts anything and announces after, and how a wrong command line reads."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from services.launcher.facts import run_file
from services.launcher.fleet import embedded, fleet_plan, ports, up
from services.launcher.fleet.machines import Token
from services.launcher.fleet.up import announcement, qr_code
from services.launcher.models import fetching
from services.launcher.settings.service_options import Handed
from services.launcher.settings.up_options import UpOptions
from shared.errors import StartError
from shared.fleet.model_names import Names
from shared.machine.devices import Device
from shared.model import hardware
from shared.model.hardware import Hardware
from shared.process import api_keys
from shared.settings import options
from shared.settings.options import CacheType, Exactness, Level, Switch
from shared.settings.options_struct import build, values
from shared.settings.verifier_options import TargetOptions, VerifierOptions
from shared.wire.messages import Speculation
from tests import command_lines, tiny_gguf
from tests.command_lines import launch_in
from tests.patience import PROCESS_S

GB = 10**9
CPU = Device("CPU", "a CPU", "cpu", 8 * GB, 8 * GB)
GPU = Device("CUDA0", "a GPU", "gpu", 9 * GB, 9 * GB)
OPTIONS = UpOptions(port=0, redis_port=0)


def make(tmp_path: Path, *devices: Device, **options: object) -> fleet_plan.Plan:
    wanted = build(UpOptions, values(OPTIONS) | options)
    return fleet_plan.make(wanted, devices or (CPU,), model_in(tmp_path), tmp_path, {"HOME": "x"})


def model_in(folder: Path) -> Callable[[str, str], Path]:
    """A tiny model for each name."""

    def resolve(spec: str, _: str) -> Path:
        path = folder / f"{spec.replace('/', '-')}.gguf"
        return path if path.exists() else tiny_gguf.write(path)

    return resolve


def option(command: tuple[str, ...], name: str) -> str:
    return command[command.index(name) + 1]


def test_without_draft_models_there_is_one_lookup_drafter(tmp_path: Path) -> None:
    drafters = make(tmp_path).drafters
    assert [drafter.name for drafter in drafters] == ["lookup drafter"]
    assert "--draft-model" not in drafters[0].command


def test_each_draft_model_gets_a_drafter_on_its_device(tmp_path: Path) -> None:
    made = make(tmp_path, CPU, GPU, draft_model=("a", "b"), draft_device=("cuda:0",), target_device=("cpu",))
    assert [option(drafter.command, "--draft-device") for drafter in made.drafters[1:]] == ["cuda:0", "cuda:0"]
    assert option(made.verifiers[0].command, "--target-device") == "cpu"


def test_a_gateway_that_other_machines_reach_wants_keys_or_a_word(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="--api-keys-file"):
        make(tmp_path, host="0.0.0.0")
    assert "--no-auth" in make(tmp_path, host="0.0.0.0", no_auth=True).gateway.command
    file = tmp_path / "keys"
    api_keys.add(file, "alice")
    command = make(tmp_path, host="0.0.0.0", api_keys_file=str(file)).gateway.command
    assert option(command, "--api-keys-file") == str(file)


def test_targets_and_drafters_find_their_share_of_the_cores_themselves(tmp_path: Path) -> None:
    """They know of each other, and of whatever else runs on the machine, when their models are loaded."""
    made = make(tmp_path, draft_model=("a",))
    assert "--threads" not in made.verifiers[0].command
    assert "--threads" not in made.drafters[1].command


def test_several_targets_get_a_verifier_each(tmp_path: Path) -> None:
    made = make(tmp_path, CPU, target_model=("big", "small"), alias=("x=small",), draft_model=("a",))
    commands = [program.command for program in made.verifiers]
    assert [option(command, "--target-model") for command in commands] == [
        str(tmp_path / f"{name}.gguf") for name in ("big", "small")
    ]
    assert [option(command, "--alias") for command in commands] == ["default", "x"]
    assert [program.name for program in made.verifiers] == ["verifier 1", "verifier 2"]


def test_several_targets_spread_over_the_devices_and_drafts_avoid_them(tmp_path: Path) -> None:
    other = Device("CUDA1", "a GPU", "gpu", 1, 1)
    made = make(tmp_path, CPU, GPU, other, target_model=("a", "b", "c"), draft_model=("d",))
    where = [option(program.command, "--target-device") for program in made.verifiers]
    assert where == ["cuda:0", "cuda:1", "cuda:0"]
    assert option(made.drafters[1].command, "--draft-device") == "cpu"
    made = make(tmp_path, CPU, GPU, target_model=("a", "b"), target_device=("cpu",))
    where = [option(program.command, "--target-device") for program in made.verifiers]
    assert where == ["cpu", "cuda:0"]


def test_the_gateway_drains_for_as_long_as_asked_and_is_not_killed_meanwhile(tmp_path: Path) -> None:
    made = make(tmp_path, drain=600.0)
    assert option(made.gateway.command, "--drain") == "600.0"
    assert made.gateway.grace_s == 605
    assert made.verifiers[0].grace_s == 25


def test_a_lone_target_has_no_alias_that_nobody_asked_for(tmp_path: Path) -> None:
    assert "--alias" not in make(tmp_path).verifiers[0].command


def test_asked_threads_are_the_targets(tmp_path: Path) -> None:
    made = make(tmp_path, draft_model=("a",), threads=5)
    assert option(made.verifiers[0].command, "--threads") == "5"
    assert "--threads" not in made.drafters[1].command


def test_redis_is_in_the_environment_and_not_on_a_command_line(tmp_path: Path) -> None:
    made = make(tmp_path, redis="redis://:secret@elsewhere:6379/0")
    programs = (made.gateway, *made.verifiers, *made.drafters)
    assert made.valkey is None
    assert {program.environment["DRAFTMESH_REDIS"] for program in programs} == {"redis://:secret@elsewhere:6379/0"}
    assert not [program for program in programs if "secret" in " ".join(program.command)]


def test_an_open_embedded_redis_has_passwords_that_no_command_line_tells(tmp_path: Path) -> None:
    made = make(tmp_path, redis_host="0.0.0.0")
    assert made.valkey is not None
    password = made.redis.removeprefix("redis://:").partition("@")[0]
    assert password not in made.invitation
    [token] = made.tokens
    assert token.password not in made.invitation
    programs = (made.valkey, made.gateway, *made.verifiers, *made.drafters)
    for secret in (password, token.password):
        assert not [program for program in programs if secret in " ".join(program.command)]


def told(made: fleet_plan.Plan, *models: str, **aliases: str) -> list[str]:
    return announcement(made, Names(models=models or ("m",), aliases=aliases)).splitlines()


def test_a_closed_fleet_announces_no_way_in(tmp_path: Path) -> None:
    made = make(tmp_path)
    assert made.invitation == made.lan_url == made.api_key == ""
    assert made.beacon is None
    assert len(told(made)) == 2


def test_the_invitation_of_an_open_one_can_be_pasted_on_a_spare_machine(tmp_path: Path) -> None:
    made = make(tmp_path, redis_host="0.0.0.0", draft_model=("local.gguf", "hf:user/small:Q4"))
    join, token = told(made)[-2:]
    assert re.fullmatch(r"on a spare machine: draftmesh join redis://[\w.]+:\d+/0 --draft-model hf:user/small:Q4", join)
    assert token.startswith(f"its token, for which join asks: {made.tokens[0]} (`draftmesh invite NAME`")


def test_with_several_machines_the_tokens_are_not_shown(tmp_path: Path) -> None:
    made = make(tmp_path, redis_host="0.0.0.0")
    several = replace(made, tokens=(Token("desk", "d" * 20), Token("laptop", "l" * 20)))
    assert told(several)[-1].startswith("tokens have: desk, laptop (")


def test_a_fleet_in_the_local_network_has_an_address_a_key_and_a_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "own_address", lambda: "127.0.0.2")  # of this machine, and yet another
    monkeypatch.setattr(embedded, "_is_open", lambda address: True)
    made = make(tmp_path, lan=True)
    assert made.gateway.environment[api_keys.VARIABLE] == made.api_key
    assert option(made.gateway.command, "--host") == "0.0.0.0"
    assert made.api_key not in " ".join(made.gateway.command)
    assert made.beacon is not None
    assert (made.beacon.host, made.beacon.model) == ("127.0.0.2", "default")
    assert f":{made.beacon.port}/0" in made.invitation
    lines = told(made)
    assert f"Authorization: Bearer {made.api_key}" in lines[1]
    assert lines[2].startswith("from other machines: http://127.0.0.2:")
    assert api_keys.VARIABLE not in made.verifiers[0].environment
    with_keys = fleet_plan.make(
        replace(OPTIONS, lan=True),
        (CPU,),
        model_in(tmp_path),
        tmp_path,
        {api_keys.VARIABLE: "own"},
    )
    assert with_keys.api_key == ""


def test_a_machine_without_a_network_cannot_be_opened_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "own_address", lambda: "")
    with pytest.raises(StartError, match="--lan on: this machine has no address"):
        make(tmp_path, lan=True)


def test_a_verifier_reads_all_that_up_was_told_of_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = TargetOptions(
        ctx=256,
        parallel=3,
        threads=2,
        cache_type_k=CacheType.BF16,
        cache_type_v=CacheType.F16,
        flash_attn=Switch.ON,
        exactness=Exactness.LAW,
        cache_ram="100",
        gpu_layers="all",
        tensor_split="1",
        offline=True,
        speculation=Speculation.OFF,
    )
    usual = values(TargetOptions())
    assert not [key for key, value in values(told).items() if value == usual[key]], "an option is not tried here"
    command = (
        make(tmp_path, GPU, CPU, target_device=["cuda:0"], log_level=Level.DEBUG, **values(told)).verifiers[0].command
    )
    monkeypatch.setattr(options, "go_offline", lambda: None)  # would last for this process
    words = command[command.index("services.verifier") + 1 :]
    read = build(VerifierOptions, command_lines.options("verifier", words, monkeypatch))
    assert (read.target, read.log_level) == (told, Level.DEBUG)


def test_the_gateway_stops_first_and_valkey_last(tmp_path: Path) -> None:
    made = make(tmp_path, draft_model=("a",))
    assert made.valkey is not None
    stages = [made.gateway.stage, made.verifiers[0].stage, made.drafters[0].stage, made.valkey.stage]
    assert stages == sorted(set(stages))


def test_a_taken_port_of_the_embedded_server_is_replaced_and_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        made = make(tmp_path, redis_port=port)
    assert made.notes[0].startswith(f"port {port} is in use, the embedded Valkey takes ")
    assert str(port) not in made.redis


def test_a_taken_port_of_the_gateway_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=f"--port {port}: in use"):
            make(tmp_path, port=port)


def test_a_host_that_is_not_here_is_an_error() -> None:
    with pytest.raises(StartError, match=re.escape("--host 192.0.2.1: ")):
        ports.claim("192.0.2.1", 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache_type_v": CacheType.Q8_0, "flash_attn": Switch.OFF}, "--cache-type-v q8_0: quantised values need"),
        ({"redis": "localhost"}, "--redis localhost: an address such as"),
        ({"redis": "redis://h", "redis_host": "0.0.0.0"}, "--redis-host 0.0.0.0: is the embedded Valkey's"),
        ({"lan": True, "redis": "redis://h"}, "--lan on: opens the embedded Valkey"),
        ({"redis_host": "192.0.2.1"}, "--redis-host 192.0.2.1: cannot listen there"),
        ({"tensor_split": "x"}, "--tensor-split x: "),
        ({"target_device": ("cpu", "cpu")}, "--target-device cpu: one per --target-model, and there are 1"),
        ({"alias": ("a b",)}, "--alias a b: up to 256 characters"),
        ({"draft_device": ("cpu",)}, "--draft-device cpu: one per --draft-model, and there are 0"),
        ({"target_device": ("cuda:1",)}, "--target-device cuda:1: no such device; here: cpu"),
    ],
)
def test_a_bad_value_is_found_before_anything_starts(tmp_path: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(StartError) as caught:
        make(tmp_path, **options)
    assert str(caught.value).startswith(message)


def test_a_chat_template_is_for_the_target_at_its_place_and_checked_before_anything_starts(tmp_path: Path) -> None:
    file = tmp_path / "mine.jinja"
    file.write_text("{{ messages }}")
    made = make(tmp_path, target_model=("a", "b", "c"), chat_template=("own", str(file)))
    templates = [
        option(program.command, "--chat-template") if "--chat-template" in program.command else ""
        for program in made.verifiers
    ]
    assert templates == ["", str(file), ""]
    assert option(make(tmp_path, chat_template=("chatml",)).verifiers[0].command, "--chat-template") == "chatml"
    with pytest.raises(StartError, match=r"--chat-template gone: neither chatml"):
        make(tmp_path, chat_template=("gone",))
    with pytest.raises(StartError, match=r"--chat-template gemma: one per --target-model, and there are 1"):
        make(tmp_path, chat_template=("chatml", "gemma"))


def test_the_request_to_paste_is_one_that_the_model_takes(tmp_path: Path) -> None:
    made = make(tmp_path)
    names = Names(models=("big", "small"), aliases={"default": "big"})
    line = announcement(made, names, {"big": "no chat template"}).splitlines()[1]
    assert line.startswith(f"curl {made.url}/v1/completions ")
    assert '"prompt": ' in line
    assert "/v1/chat/completions " in announcement(made, names, {"small": "no chat template"})


def test_the_announcement_can_be_pasted_whatever_the_models_name(tmp_path: Path) -> None:
    line = told(make(tmp_path), "it's")[1]
    shown = subprocess.run(["sh", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True, check=True).stdout
    assert '"model": "it\'s"' in shown


def test_an_invitation_is_a_picture_too() -> None:
    drawn = qr_code("draftmesh join redis://drafter:" + "t" * 32 + "@192.168.100.100:7072/0").splitlines()
    assert 18 < len(drawn) < 30
    assert len({len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in drawn}) == 1
    assert max(len(line) for line in drawn) < 80


def test_the_announcement_tells_every_name_where_there_are_several(tmp_path: Path) -> None:
    lines = told(make(tmp_path), "big", "small", default="big")
    assert '"model": "big"' in lines[1]
    assert lines[2:] == ["served: big (also default), small"]


@pytest.fixture
def run_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], int]:
    """Runs `up` with a fleet that ends at once with the given status."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(hardware, "look", lambda: Hardware((CPU,)))
    model = tiny_gguf.write(tmp_path / "m.gguf")
    monkeypatch.setattr(fetching, "find", lambda *_: model)

    def run(status: int) -> int:
        async def end(_: up.FleetProcesses) -> int:
            return status

        monkeypatch.setattr(up.FleetProcesses, "run", end)
        return up.run(OPTIONS, Handed())

    return run


@pytest.mark.parametrize(("status", "kept"), [(0, False), (1, True), (2, False)])
def test_only_after_a_failure_the_logs_of_up_are_kept(
    status: int, kept: bool, run_up: Callable[[int], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_up(status) == status
    assert len(list(tmp_path.glob("draftmesh-*"))) == kept
    assert (run_file.last_dead() is not None) == kept
    assert ("logs are kept in" in capsys.readouterr().err) == kept


def test_an_up_that_cannot_tell_of_itself_runs_all_the_same(
    run_up: Callable[[int], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    assert run_up(0) == 0
    assert "will need --redis" in capsys.readouterr().err


def test_an_up_without_room_for_its_files_is_refused_in_one_line(
    run_up: Callable[[int], int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    with pytest.raises(StartError, match=rf"TMPDIR {tmp_path}/gone: no folder for logs can be made there"):
        run_up(0)
    (tmp_path / "logs/valkey.conf").mkdir(parents=True)  # nobody can write a file there
    with pytest.raises(StartError, match=rf"TMPDIR {tmp_path}/logs: cannot be written"):
        embedded.program(embedded.place(ports.LOOPBACK, 0), tmp_path / "logs", {})


def run_draftmesh(*arguments: str, **environment: str) -> tuple[int, str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DRAFTMESH_")}
    done = launch_in({**clean, **environment}, *arguments)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("up", "--port", "99999"), "error: --port 99999: "),
        (("up", "--port=x"), "error: --port x: "),
        (("up", "--flash-attn", "maybe"), "error: --flash-attn maybe: "),
        (("up", "--target-device", "cuda:77"), "error: --target-device cuda:77: no such device; here: "),
        (("up", "--target-model", "absent.gguf"), "error: --target-model absent.gguf: no such file"),
        (("up", "--nonsense"), "error: No such option: --nonsense"),
        (("nonsense",), "error: No such command 'nonsense'"),
        (("status", "--redis", "redis://:p@127.0.0.1:1/0"), "error: --redis redis://***@127.0.0.1:1/0: no answer"),
        (("doctor", "--redis", "foo"), "error: --redis foo: an address such as"),
        (("join", "foo"), "error: --redis foo: an address such as"),
        (("up", "--redis", "redis://127.0.0.1:1/0"), "error: --redis redis://127.0.0.1:1/0: no answer"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_status_2(arguments: tuple[str, ...], line: str) -> None:
    code, output, errors = run_draftmesh(*arguments)
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert errors.startswith(line)


def test_a_wrong_environment_twin_is_named_with_its_value() -> None:
    _, _, errors = run_draftmesh("up", DRAFTMESH_PARALLEL="many")
    assert errors.startswith("error: --parallel many: ")


def test_the_version_is_told() -> None:
    assert run_draftmesh("--version")[:2] == (0, "draftmesh 0.1.0\n")


def become(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command that becomes another program, and so needs a process."""
    command = [sys.executable, "-P", "-m", "services.launcher", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PROCESS_S, check=False)


def test_a_service_explains_its_own_options() -> None:
    done = become("drafter", "--help")
    assert done.returncode == 0
    assert "--draft-device" in done.stdout


def test_a_wrong_option_of_a_service_is_one_line_and_status_2() -> None:
    done = become("verifier", "--parallel", "0")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("error: --parallel 0: ")


def test_a_fleet_without_processes_is_told_and_status_1(valkey_url: str) -> None:
    code, output, _ = run_draftmesh("status", "--redis", valkey_url.removesuffix("/0") + "/15")
    assert (code, output.startswith("no process is registered")) == (1, True)
