"""What `up` decides before it starts anything, what `status` says, and how a wrong command line reads."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from services.launcher import fetching, hardware, payoff, plan, ports, run_file, status, up
from services.launcher.hardware import Hardware, SeenDevice
from services.launcher.service_options import Handed
from services.launcher.up import announcement
from shared import api_keys, fleet
from shared.errors import StartError
from shared.messages import Card, DrafterCard, DrafterCounts, GatewayCard, RequestStatus, Speculation
from shared.options import CacheType, Exactness, Level, Switch
from tests import fleet_cards

CPU = SeenDevice("CPU", "a CPU", "cpu", 1, 1)
GPU = SeenDevice("CUDA0", "a GPU", "gpu", 2, 2)
WISHES = plan.Wishes(
    target_model="default",
    target_device="auto",
    draft_model=(),
    draft_device=(),
    host="127.0.0.1",
    port=0,
    api_keys_file="",
    no_auth=False,
    redis="",
    redis_port=0,
    redis_host="127.0.0.1",
    ctx=0,
    parallel=8,
    threads=0,
    cache_type_k=CacheType.AUTO,
    cache_type_v=CacheType.AUTO,
    flash_attn=Switch.AUTO,
    exactness=Exactness.AUTO,
    gpu_layers=-1,
    tensor_split="",
    speculation=Speculation.AUTO,
    log_level=Level.INFO,
)


def make(tmp_path: Path, *devices: SeenDevice, cores: int = 4, **wishes: object) -> plan.Plan:
    hardware = Hardware(devices or (CPU,))
    wanted = replace(WISHES, **wishes)  # type: ignore[arg-type]
    return plan.make(wanted, hardware, cores, lambda spec, _: tmp_path / f"{spec}.gguf", tmp_path, {"HOME": "x"})


def option(command: tuple[str, ...], name: str) -> str:
    return command[command.index(name) + 1]


def test_without_draft_models_there_is_one_lookup_drafter(tmp_path: Path) -> None:
    drafters = make(tmp_path).drafters
    assert [drafter.name for drafter in drafters] == ["lookup drafter"]
    assert "--draft-model" not in drafters[0].command


def test_each_draft_model_gets_a_drafter_on_its_device(tmp_path: Path) -> None:
    made = make(tmp_path, CPU, GPU, draft_model=("a", "b"), draft_device=("cuda:0",), target_device="cpu")
    assert [option(drafter.command, "--draft-device") for drafter in made.drafters[1:]] == ["cuda:0", "cuda:0"]
    assert option(made.verifier.command, "--target-device") == "cpu"


def test_a_gateway_that_other_machines_reach_wants_keys_or_a_word(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="--api-keys-file"):
        make(tmp_path, host="0.0.0.0")
    assert "--no-auth" in make(tmp_path, host="0.0.0.0", no_auth=True).gateway.command
    file = tmp_path / "keys"
    api_keys.add(file, "alice")
    command = make(tmp_path, host="0.0.0.0", api_keys_file=str(file)).gateway.command
    assert option(command, "--api-keys-file") == str(file)


def test_threads_are_shared_with_drafters_on_the_cpu(tmp_path: Path) -> None:
    made = make(tmp_path, draft_model=("a",), cores=2)
    assert option(made.verifier.command, "--threads") == "1"
    assert option(made.drafters[1].command, "--threads") == "1"


def test_asked_threads_are_the_targets_and_drafters_get_the_rest(tmp_path: Path) -> None:
    made = make(tmp_path, draft_model=("a",), cores=8, threads=5)
    assert option(made.verifier.command, "--threads") == "5"
    assert option(made.drafters[1].command, "--threads") == "3"


def test_redis_is_in_the_environment_and_not_on_a_command_line(tmp_path: Path) -> None:
    made = make(tmp_path, redis="redis://:secret@elsewhere:6379/0")
    programs = (made.gateway, made.verifier, *made.drafters)
    assert made.valkey is None
    assert {program.environment["DRAFTMESH_REDIS"] for program in programs} == {"redis://:secret@elsewhere:6379/0"}
    assert not [program for program in programs if "secret" in " ".join(program.command)]


def test_an_open_embedded_redis_has_a_password_that_no_command_line_tells(tmp_path: Path) -> None:
    made = make(tmp_path, redis_host="0.0.0.0")
    assert made.valkey is not None
    password = made.redis.removeprefix("redis://:").partition("@")[0]
    assert password in made.shared_redis
    programs = (made.valkey, made.gateway, made.verifier, *made.drafters)
    assert not [program for program in programs if password in " ".join(program.command)]


def test_a_closed_embedded_redis_is_not_announced(tmp_path: Path) -> None:
    made = make(tmp_path)
    assert made.shared_redis == ""
    assert "join" not in announcement(made.url, "m", made.shared_redis)


def test_the_announcement_of_an_open_one_can_be_pasted_on_a_spare_machine() -> None:
    last = announcement("http://127.0.0.1:1", "m", "redis://:p@192.0.2.7:7072/0").splitlines()[-1]
    assert last.endswith(": draftmesh join redis://:p@192.0.2.7:7072/0")


def test_the_gateway_stops_first_and_valkey_last(tmp_path: Path) -> None:
    made = make(tmp_path, draft_model=("a",))
    assert made.valkey is not None
    stages = [made.gateway.stage, made.verifier.stage, made.drafters[0].stage, made.valkey.stage]
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
    ("wishes", "message"),
    [
        ({"cache_type_v": CacheType.Q8_0, "flash_attn": Switch.OFF}, "--cache-type-v q8_0: quantised values need"),
        ({"redis": "localhost"}, "--redis localhost: an address such as"),
        ({"redis": "redis://h", "redis_host": "0.0.0.0"}, "--redis-host 0.0.0.0: is the embedded Valkey's"),
        ({"redis_host": "192.0.2.1"}, "--redis-host 192.0.2.1: cannot be listened on"),
        ({"tensor_split": "x"}, "--tensor-split x: "),
        ({"draft_device": ("cpu",)}, "--draft-device cpu: one per --draft-model, and there are 0"),
        ({"target_device": "cuda:1"}, "--target-device cuda:1: no such device; here: cpu"),
    ],
)
def test_a_bad_value_is_found_before_anything_starts(tmp_path: Path, wishes: dict[str, object], message: str) -> None:
    with pytest.raises(StartError) as caught:
        make(tmp_path, **wishes)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)


def test_cheap_rows_pay_and_dear_rows_do_not() -> None:
    assert payoff.payoff(0.7, {1: 10.0, 8: 12.0, 16: 14.0}).width > 3
    assert payoff.payoff(0.7, {1: 10.0, 8: 70.0, 16: 130.0}).width == 0
    assert "does not pay here (8 rows cost 7.0 single steps)" in payoff.verdict({1: 10.0, 8: 70.0})


def test_a_slow_drafter_bounds_the_gain() -> None:
    rows = {1: 10.0, 8: 12.0, 16: 14.0}
    assert payoff.payoff(0.9, rows, draft_ms=8.0).speedup < payoff.payoff(0.9, rows, draft_ms=1.0).speedup


def test_the_announcement_can_be_pasted_whatever_the_models_name() -> None:
    line = announcement("http://127.0.0.1:1", "it's", "").splitlines()[1]
    shown = subprocess.run(["sh", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True, check=True).stdout
    assert '"model": "it\'s"' in shown


VERIFIER = structs.replace(
    fleet_cards.VERIFIER,
    exactness_note="bit-equal",
    row_ms=((1, 10.0), (8, 60.0)),
    drafters=(DrafterCounts(drafter="d", drafted=10, accepted=6, rounds=4, stale=2, added=3),),
    refused=(("other", "token 7 differs"),),
    requests=(RequestStatus(request_id="r", offset=5, tokens_per_round=1.0, reason="does not pay"),),
)


def drafter(name: str) -> DrafterCard:
    return structs.replace(fleet_cards.DRAFTER, id=name)


def test_a_drafters_worth_is_told() -> None:
    shown = fleet.describe([VERIFIER, drafter("d")])["drafters"][0]
    worth = {name: shown[name] for name in ("acceptance_rate", "tokens_per_round", "added", "stale", "refused")}
    assert worth == {"acceptance_rate": 0.6, "tokens_per_round": 2.5, "added": 3, "stale": 2, "refused": None}


def test_a_refused_drafter_is_shown_with_the_reason() -> None:
    assert fleet.describe([VERIFIER, drafter("other")])["drafters"][0]["refused"] == "token 7 differs"


def test_a_drafter_that_nobody_used_yet_is_shown() -> None:
    assert fleet.describe([VERIFIER, drafter("new")])["drafters"][0]["acceptance_rate"] is None


def test_a_request_says_why_it_is_not_speculating() -> None:
    assert fleet.describe([VERIFIER])["requests"][0]["reason"] == "does not pay"


def test_rows_are_told_in_single_steps() -> None:
    assert fleet.describe([VERIFIER])["verifiers"][0]["row_cost"] == {1: 1.0, 8: 6.0}


def test_every_kind_of_process_has_its_place_in_the_tables() -> None:
    cards: list[Card] = [VERIFIER, drafter("d"), GatewayCard(id="g", host="h", pid=3, url="http://h:1", streams=2)]
    assert len(status.tables(fleet.describe(cards))) == 7


@pytest.fixture
def run_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], int]:
    """Runs `up` with a fleet that ends at once with the given status."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(hardware, "look", lambda: Hardware((CPU,)))
    monkeypatch.setattr(fetching, "find", lambda *_: tmp_path / "m.gguf")

    def run(status: int) -> int:
        async def end(_: up.Fleet) -> int:
            return status

        monkeypatch.setattr(up.Fleet, "run", end)
        return up.run(WISHES, (), Handed())

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


def run_draftmesh(*arguments: str, **environment: str) -> tuple[int, str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DRAFTMESH_")}
    command = [sys.executable, "-P", "-m", "services.launcher", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**clean, **environment}, check=False
    )
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
        (("verifier", "--parallel", "0"), "error: --parallel 0: "),
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


def test_a_service_explains_its_own_options() -> None:
    code, output, _ = run_draftmesh("drafter", "--help", COLUMNS="200")
    assert code == 0
    assert "--draft-device" in output


def test_a_fleet_without_processes_is_told_and_status_1(valkey_url: str) -> None:
    code, output, _ = run_draftmesh("status", "--redis", valkey_url.removesuffix("/0") + "/15")
    assert (code, output.startswith("no processes")) == (1, True)
