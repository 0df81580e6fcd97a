"""Every client with what it is asked to do: a turn of text, and where it has tools a round trip through a real one."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from clients.installs import Npm, PyPI
from clients.script import GREETING, QUOTE, RESULT, SHELL, call, say

_PROGRAMS: Final = Path(__file__).parent / "programs"
_QUOTED: Final = QUOTE + RESULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a trial happens: a gateway with a model, and folders that belong to this trial alone."""

    url: str
    model: str
    home: Path
    work: Path
    programs: Path  # the client's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One run of a client. It passes if it exits with 0 and prints `shows`; and writes `writes` to a file, if any.

    With an empty `shows` any text will do.
    """

    command: Callable[[Place], list[str]]
    shows: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # what lies in the work folder at the beginning
    writes: tuple[str, str] | None = None  # a file's name and content at the end


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A client and its tasks."""

    name: str
    install: PyPI | Npm
    api: str
    text: Task
    tools: Task | None
    remark: str = ""


def _launched(client: str, *arguments: str) -> Callable[[Place], list[str]]:
    """The client as `draftmesh launch` starts it."""

    def command(place: Place) -> list[str]:
        launch = [sys.executable, "-m", "services.launcher", "launch", client]
        return [*launch, "--url", place.url, "--model", place.model, "--", *arguments]

    return command


def _program(name: str, *arguments: str) -> Callable[[Place], list[str]]:
    """A program of ours, run by the client's own Python."""
    return lambda place: [
        *(str(place.programs / "python"), str(_PROGRAMS / name)),
        *(place.url, place.model, *arguments),
    ]


def _llm(*arguments: str) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        model = {"model_id": "ours", "model_name": place.model, "api_base": f"{place.url}/v1"}
        model |= {"supports_tools": True, "supports_schema": True}  # type: ignore[dict-item]
        settings = place.home / "llm"
        settings.mkdir(parents=True, exist_ok=True)
        (settings / "extra-openai-models.yaml").write_text(json.dumps([model]))
        return [str(place.programs / "llm"), "-m", "ours", "--key", "none", "-o", "max_tokens", "256", *arguments]

    return command


_CLAUDE: Final = ("--output-format", "json")
_CODEX: Final = ("exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", "--json")
_AIDER: Final = ("--yes-always", "--no-git", "--map-tokens", "0", "--no-pretty")
_EDIT: Final = f"note.txt\n```\n{RESULT}\n```\n"

TRIALS: Final = (
    Trial(
        name="Claude Code",
        install=Npm("@anthropic-ai/claude-code", "2.1.197"),
        api="/v1/messages",
        text=Task(command=_launched("claude", "-p", "hi", *_CLAUDE), shows=GREETING),
        tools=Task(
            command=_launched("claude", "-p", call("Bash", command=SHELL), "--allowedTools", "Bash", *_CLAUDE),
            shows=_QUOTED,
        ),
    ),
    Trial(
        name="Codex",
        install=Npm("@openai/codex", "0.171.0"),
        api="/v1/responses",
        text=Task(command=_launched("codex", *_CODEX, "hi"), shows=GREETING),
        tools=Task(command=_launched("codex", *_CODEX, call("exec_command", cmd=SHELL)), shows=_QUOTED),
    ),
    Trial(
        name="OpenCode",
        install=Npm("opencode-ai", "1.18.33"),
        api="/v1/chat/completions",
        text=Task(command=_launched("opencode", "run", "--format", "json", "hi"), shows=GREETING),
        tools=Task(
            command=_launched(
                "opencode", "run", "--format", "json", call("bash", command=SHELL, description="Multiplies")
            ),
            shows=_QUOTED,
        ),
    ),
    Trial(
        name="Continue CLI",
        install=Npm("@continuedev/cli", "1.5.47"),
        api="/v1/chat/completions",
        text=Task(command=_launched("continue", "-p", "hi"), shows=GREETING),
        tools=Task(command=_launched("continue", "--auto", "-p", call("Bash", command=SHELL)), shows=_QUOTED),
    ),
    Trial(
        name="aider",
        install=PyPI("aider-chat"),
        api="/v1/chat/completions",
        text=Task(command=_launched("aider", *_AIDER, "--message", "hi"), shows=GREETING),
        tools=Task(
            command=_launched("aider", *_AIDER, "--message", say(_EDIT), "note.txt"),
            files={"note.txt": "old\n"},
            writes=("note.txt", f"{RESULT}\n"),
        ),
        remark="has no tools: it edits a file by what the answer says",
    ),
    Trial(
        name="llm",
        install=PyPI("llm"),
        api="/v1/chat/completions",
        text=Task(command=_llm("hi"), shows=GREETING),
        tools=Task(
            command=_llm(
                *("--functions", "def multiply(a: int, b: int) -> str:\n    return f'works-{a * b}'"),
                call("multiply", a=6, b=7),
            ),
            shows=_QUOTED,
        ),
    ),
    Trial(
        name="LangChain",
        install=PyPI("langchain-openai"),
        api="/v1/chat/completions",
        text=Task(command=_program("langchain_chat.py", "text"), shows=GREETING),
        tools=Task(command=_program("langchain_chat.py", "tools", call("multiply", a=6, b=7)), shows=_QUOTED),
    ),
    Trial(
        name="LangChain, Responses",
        install=PyPI("langchain-openai"),
        api="/v1/responses",
        text=Task(command=_program("langchain_chat.py", "text", "", "responses"), shows=GREETING),
        tools=Task(
            command=_program("langchain_chat.py", "tools", call("multiply", a=6, b=7), "responses"), shows=_QUOTED
        ),
    ),
    Trial(
        name="LangChain, structured output",
        install=PyPI("langchain-openai"),
        api="/v1/chat/completions",
        text=Task(
            command=_program("langchain_chat.py", "schema", say(json.dumps({"product": 42}))), shows="{'product': 42}"
        ),
        tools=Task(
            command=_program("langchain_chat.py", "forced", call("Product", product=42)), shows="{'product': 42}"
        ),
        remark="`json_schema`, and a tool that must be called",
    ),
    Trial(
        name="litellm",
        install=PyPI("litellm"),
        api="/v1/chat/completions",
        text=Task(command=_program("litellm_chat.py", "openai", "text"), shows=GREETING),
        tools=Task(command=_program("litellm_chat.py", "openai", "tools", call("multiply", a=6, b=7)), shows=_QUOTED),
    ),
    Trial(
        name="litellm, Anthropic",
        install=PyPI("litellm"),
        api="/v1/messages",
        text=Task(command=_program("litellm_chat.py", "anthropic", "text"), shows=GREETING),
        tools=Task(
            command=_program("litellm_chat.py", "anthropic", "tools", call("multiply", a=6, b=7)), shows=_QUOTED
        ),
    ),
)
