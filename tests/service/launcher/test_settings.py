"""From `setup` to answers: `up` starts what the file says, and its children take nothing else from it."""

import signal
import sys
import urllib.request
from pathlib import Path

import pytest

from shared.settings import settings_file
from tests import tiny_models
from tests.processes import children
from tests.service.launcher.test_launcher import clean_environment, draftmesh

pytestmark = [
    pytest.mark.model,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="reads what children were started with in /proc"),
]
OWN = """
port = 0
redis_port = 0
parallel = 3
ctx = 256
gpu_layers = 3

[gateway]
max_requests = 7
host = "0.0.0.0"

[verifier]
lease = 7
"""


def test_up_starts_what_setup_wrote_and_the_user_added(tmp_path: Path) -> None:
    file, log = tmp_path / settings_file.NAME, tmp_path / "log"
    environment = clean_environment() | {"DRAFTMESH_PARALLEL": "2"}
    model = tiny_models.write(tmp_path / "tiny.gguf")
    arguments = ("setup", "--no-probe", "--target-model", str(model), "--output", str(file))
    with draftmesh(*arguments, environment=environment, log=log) as process:
        assert process.wait(60) == 0, log.read_text()
    file.write_text(file.read_text() + OWN)
    with draftmesh("up", "--config", str(file), "--ctx", "512", environment=environment, log=log) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready.startswith("draftmesh is ready: http://127.0.0.1:"), log.read_text()[-2000:]
        started = {service_of(pid): pid for pid in children(process.pid)}
        verifier = command_of(started["verifier"])
        assert [value_of(verifier, name) for name in ("--ctx", "--parallel", "--gpu-layers")] == ["512", "2", "3"]
        assert "--gpu-layers" not in command_of(started["drafter"]), "the top level's is the target's"
        assert "--host" not in command_of(started["gateway"]), "its own default is the one of `up`"
        assert "DRAFTMESH_HOST" not in variables_of(started["gateway"])
        assert variables_of(started["gateway"])["DRAFTMESH_MAX_REQUESTS"] == "7"
        assert variables_of(started["verifier"])["DRAFTMESH_LEASE"] == "7"
        files = {service: variables_of(pid).get(settings_file.VARIABLE) for service, pid in started.items()}
        assert files == {
            "valkey": None,
            "gateway": settings_file.OFF,
            "verifier": settings_file.OFF,
            "drafter": settings_file.OFF,
        }
        assert "host of [gateway] is not used: `up` sets it" in log.read_text()
        with urllib.request.urlopen(ready.split()[-1] + "/models", timeout=20) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, log.read_text()[-2000:]


def command_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def service_of(pid: int) -> str:
    return next((word.removeprefix("services.") for word in command_of(pid) if word.startswith("services.")), "valkey")


def variables_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(line.split("=", 1) for line in lines if "=" in line)


def value_of(command: list[str], option: str) -> str:
    return command[command.index(option) + 1]
