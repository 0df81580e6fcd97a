"""A llama.cpp whose kernels crash, as those for AMX do that gcc 12 makes: services say so and go on."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shared.fleet.registry import Registry
from shared.model.llama.self_test import SelfTestOutcome, State, run
from shared.wire.broker import connect
from shared.wire.messages import VerifierCard
from tests import crashing
from tests.patience import LOADING_S

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux" or not crashing.COMPILER, reason="makes a library with a C compiler"),
    pytest.mark.timeout(600),
]

Q4_0 = 2


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return crashing.build(tmp_path_factory.mktemp("library"))


@pytest.fixture
def environment(library: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Of processes that use the crashing library, and remember no earlier verdict; ours for the time of a test."""
    variables = {**library, "DRAFTMESH_CACHE": str(tmp_path / "cache")}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    ("crash", "extra_buffers", "what"),
    [
        ("", True, ""),
        ("rows", True, "illegal instruction at 2 rows of q4_0 weights, strict settings"),
        ("rows", False, ""),
        ("always", False, "illegal instruction at 2 rows of q4_0 weights, strict settings"),
        ("start", True, "illegal instruction at its start"),
    ],
)
def test_the_self_test_says_what_a_crash_was_and_where(
    crash: str, extra_buffers: bool, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(crashing.VARIABLE, crash)
    expected = SelfTestOutcome(State.FAILED, what) if what else SelfTestOutcome(State.PASSED)
    assert run([Q4_0], extra_buffers=extra_buffers) == expected


def ended(module: str, *arguments: str, crash: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-P", "-m", module, *arguments]
    environment = {**os.environ, crashing.VARIABLE: crash}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LOADING_S)


@pytest.mark.usefixtures("environment")
def test_the_install_says_what_is_left_out_and_what_it_costs_and_tests_once() -> None:
    first, second = (ended("shared.model.llama.fitness", crash="rows") for _ in range(2))
    sentence = (
        "llama.cpp failed its self-test on this processor (illegal instruction at 2 rows of f16 weights, strict"
        " settings), so it runs without the kernels for rearranged weights: prompts take 1.5 times as long, or up to 5"
        " times on a processor with AMX. To have them, rebuild it for this processor with `make llama`, or use the"
        " container image, which runs on any"
    )
    assert (first.returncode, second.returncode) == (3, 3)
    assert first.stderr.splitlines()[1:] == [sentence]
    assert second.stderr.splitlines() == [sentence]


@pytest.mark.usefixtures("environment")
@pytest.mark.model
def test_a_verifier_leaves_the_crashing_kernels_out_and_serves(valkey_url: str, tmp_path: Path) -> None:
    options = ["--redis", valkey_url, "--ctx", "256", "--parallel", "1", "--threads", "1", "--exactness", "law"]
    command = [sys.executable, "-P", "-m", "services.verifier", *options]
    log = tmp_path / "log"
    with log.open("wb") as errors:
        process = subprocess.Popen(command, env={**os.environ, crashing.VARIABLE: "rows"}, stderr=errors)
    try:
        asyncio.run(registered(valkey_url, process))
    finally:
        process.terminate()
    assert process.wait(30) == 0
    assert "so it runs without the kernels for rearranged weights" in log.read_text()


async def registered(url: str, process: "subprocess.Popen[bytes]") -> None:
    async with connect(url) as broker, asyncio.timeout(LOADING_S):
        while True:
            assert process.poll() is None
            if any(
                isinstance(card, VerifierCard) and card.pid == process.pid
                for card in await Registry(broker.redis).list()
            ):
                return
            await asyncio.sleep(0.05)


@pytest.mark.usefixtures("environment")
@pytest.mark.model
def test_a_verifier_that_cannot_work_at_all_says_why_in_one_line(valkey_url: str) -> None:
    found = ended("services.verifier", "--redis", valkey_url, crash="always")
    assert found.returncode == 2
    assert found.stderr.splitlines()[-1] == (
        "error: --target-model default: llama.cpp does not work on this processor (illegal instruction at 2 rows of f32"
        " weights, strict settings); rebuild it for this processor with `make llama`, or use the container image,"
        " which runs on any"
    )


def test_a_library_for_another_processor_is_refused_before_it_ends_the_process(environment: dict[str, str]) -> None:
    found = ended("shared.model.llama.fitness", crash="start")
    assert found.returncode == 1
    assert found.stderr == (
        f"error: llama.cpp {environment['LLAMA_CPP_LIB_PATH']}: it does not start on this processor (illegal"
        " instruction at its start); rebuild it for this processor with `make llama`, or use the container image,"
        " which runs on any\n"
    )
