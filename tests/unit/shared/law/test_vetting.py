"""Grammars are compiled in children first: one that never ends costs a child, and neither a core nor other grammars."""

import json
import subprocess
import sys
from typing import Any

import pytest

from shared.law import vetting
from shared.law.vetting import CHILD, MOST, NoVerdict, Vetting

ENDLESS = json.dumps(
    {"grammars": [{"json_schema": {"allOf": [{"type": "string", "pattern": f"a.{{{i}}}b"} for i in range(30)]}}]}
)
PATIENT_S = 60.0  # for grammars that compile at once, however busy the machine is


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> "list[subprocess.Popen[bytes]]":
    """All children that are started."""
    started: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def popen(*args: Any, **options: Any) -> "subprocess.Popen[bytes]":
        started.append(start(*args, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    return started


def scripted(body: str) -> tuple[str, ...]:
    """A child that is ready and then does something else."""
    start = "import sys; from shared.law.vetting import HELLO, put, take; put(sys.stdout.buffer, HELLO)"
    return (sys.executable, "-c", f"{start}\n{body}")


def test_grammars_that_never_end_leave_nothing_running_and_keep_nobody_out(
    children: "list[subprocess.Popen[bytes]]",
) -> None:
    own = Vetting()
    for index in range(MOST + 1):
        with pytest.raises(NoVerdict, match="too complex"):
            own.refusal(ENDLESS + " " * index, 0.02)
    assert len(children) == MOST + 1
    assert all(child.returncode is not None for child in children)
    assert own.refusal('start: "a"', PATIENT_S) == ""
    own.close()
    assert all(child.returncode is not None for child in children)


def test_one_child_serves_many_grammars_and_each_is_asked_once(children: "list[subprocess.Popen[bytes]]") -> None:
    own = Vetting()
    for _ in range(2):
        assert [own.refusal(f'start: "{letter}"', PATIENT_S) for letter in "abc"] == ["", "", ""]
        assert "lexer error" in own.refusal('start: "a', PATIENT_S)
    assert len(children) == 1
    children[0].kill()
    children[0].wait()
    assert own.refusal('start: "a"', PATIENT_S) == "", "what compiled before needs no child"
    assert len(children) == 1
    assert own.refusal('start: "d"', PATIENT_S) == "", "a child that died meanwhile is replaced"
    assert len(children) == 2
    own.close()


def test_a_grammar_that_breaks_its_child_is_refused(children: "list[subprocess.Popen[bytes]]") -> None:
    own = Vetting(scripted("take(sys.stdin.buffer)"))
    with pytest.raises(NoVerdict, match="ends the process"):
        own.refusal('start: "a"', PATIENT_S)
    assert [child.returncode is not None for child in children] == [True]


@pytest.mark.parametrize("command", [("/nowhere/python",), (sys.executable, "-c", "")])
def test_where_no_child_can_start_grammars_are_refused(command: tuple[str, ...]) -> None:
    with pytest.raises(NoVerdict, match="process"):
        Vetting(command).refusal('start: "a"', PATIENT_S)


def test_a_child_ends_with_its_parent() -> None:
    with subprocess.Popen(CHILD, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert vetting.take(child.stdout) == vetting.HELLO
        child.stdin.close()
        assert child.wait(PATIENT_S) == 0
