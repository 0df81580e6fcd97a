"""A wrong command line of any service is one line that names the option and the value, and exit status 2."""

import errno
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import structlog

from shared.model.llama.context import CACHE_TYPES
from shared.settings import command_line, options
from tests.patience import PROCESS_S

UNREACHABLE = "redis://:secret@127.0.0.1:1/0"  # nobody listens at port 1


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No options from this shell, and logs where they were before."""
    for name in [name for name in os.environ if name.startswith("DRAFTMESH_")]:
        monkeypatch.delenv(name)
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def refusal(
    service: str, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """What the service says when it is started with `arguments`, after a check that it is one line and status 2."""
    monkeypatch.setattr("sys.argv", [service, *arguments])
    main = importlib.import_module(f"services.{service}.__main__").main
    with pytest.raises(SystemExit) as caught:
        command_line.run(command_line.command(main), f"draftmesh {service}")
    output, errors = capsys.readouterr()
    assert (caught.value.code, output, errors.count("\n")) == (2, "", 1)
    return str(errors)


@pytest.mark.parametrize(
    ("service", "arguments", "line"),
    [
        ("gateway", ("--port", "99999"), "error: --port 99999: "),
        ("gateway", ("--port=x",), "error: --port x: "),
        ("gateway", ("--max-requests", "0"), "error: --max-requests 0: "),
        ("gateway", ("--log-level", "loud"), "error: --log-level loud: 'loud' is not one of 'debug', "),
        ("verifier", ("--parallel", "0"), "error: --parallel 0: "),
        ("verifier", ("--speculation", "maybe"), "error: --speculation maybe: 'maybe' is not one of 'auto', "),
        ("verifier", ("--exactness", "foo"), "error: --exactness foo: 'foo' is not one of 'auto', "),
        ("verifier", ("--cache-type-k", "foo"), "error: --cache-type-k foo: 'foo' is not one of 'auto', 'f32', "),
        ("verifier", ("--cache-type-v", "foo"), "error: --cache-type-v foo: "),
        ("verifier", ("--target-device", "cuda:77"), "error: --target-device cuda:77: no such device; here: "),
        ("verifier", ("--target-model", "nothere.gguf"), "error: --target-model nothere.gguf: no such file; "),
        ("verifier", ("--tensor-split", "x"), "error: --tensor-split x: "),
        ("verifier", ("--target-device", "cpu", "--tensor-split", "3,1"), "error: --tensor-split 3,1: divides GPUs, "),
        ("verifier", ("--target-device", "cuda:0,cpu"), "error: --target-device cuda:0,cpu: a list names GPUs only; "),
        ("drafter", ("--draft-model", "default", "--draft-device", "cuda:77"), "error: --draft-device cuda:77: no "),
        ("drafter", ("--draft-model", "default", "--draft-device", ""), "error: --draft-device : no such device; "),
        ("drafter", ("--draft-model", "nothere.gguf"), "error: --draft-model nothere.gguf: no such file; "),
        ("drafter", ("--draft-model", __file__), f"error: --draft-model {__file__}: not a GGUF file; "),
        ("drafter", ("--gpu-layers", "-2"), "error: --gpu-layers -2: "),
        ("drafter", ("--nonsense",), "error: No such option: --nonsense (see draftmesh drafter --help)"),
        *((service, ("--redis", "foo"), "error: --redis foo: an address such as redis://host:6379/0\n")
          for service in ("gateway", "verifier", "drafter")),
    ],
)  # fmt: skip
def test_a_bad_value_is_one_line(
    service: str,
    arguments: tuple[str, ...],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert refusal(service, arguments, monkeypatch, capsys).startswith(line)


@pytest.mark.parametrize("service", ["gateway", "verifier", "drafter"])
def test_a_redis_that_does_not_answer_is_one_line_without_its_password(
    service: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ("--target-model", "default") if service == "verifier" else ()
    line = refusal(service, ("--redis", UNREACHABLE, *model), monkeypatch, capsys)
    assert line.startswith("error: --redis redis://***@127.0.0.1:1/0: no answer (")


def test_a_value_from_the_environment_is_named_as_its_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRAFTMESH_PARALLEL", "many")
    assert refusal("drafter", (), monkeypatch, capsys).startswith("error: --parallel many: ")


def test_the_cache_types_that_are_allowed_are_those_that_are_built() -> None:
    assert set(options.CacheType) == {"auto", *CACHE_TYPES}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a file that is always full")
def test_a_result_that_cannot_be_written_is_one_line_and_status_1() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "services.launcher", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PROCESS_S,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "error: the output: cannot be written (No space left on device)\n")


def test_a_file_that_cannot_be_written_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def main() -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded", "/keys")

    monkeypatch.setattr("sys.argv", ["command"])
    with pytest.raises(SystemExit) as caught:
        command_line.run(command_line.command(main), "command")
    assert caught.value.code == 1
    assert capsys.readouterr().err == "error: /keys: cannot be written (Disk quota exceeded)\n"
