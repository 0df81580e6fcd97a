"""Logs tell what happened and where, and no word of what anybody asked, answered or proved himself with."""

import ast
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from redis.exceptions import ResponseError

from shared.errors import StartError
from shared.process.logs import REDACTED, redact, tell_exception


def cleaned(**event: Any) -> dict[str, Any]:
    return dict(redact(None, "", event))


SECRETS = "authorization Authorization api_key API_KEYS messages prompt text content tokens password redis_password"
SECRETS += " client_secret cookie headers body system_prompt"


@pytest.mark.parametrize("name", SECRETS.split())
def test_fields_are_taken_out_by_name_at_any_depth(name: str) -> None:
    event = cleaned(**{name: "hush"}, nested={name: ["hush"], "deeper": [{name: {"x": "hush"}}]})
    assert "hush" not in str(event)
    assert event[name] == REDACTED


def test_numbers_and_names_stay() -> None:
    event = {"event": "request_finished", "prompt_tokens": 7, "tokens": 3, "ttft_ms": 1.5, "model": "smol", "x": None}
    assert cleaned(**event) == event


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("redis://gateway:hush@valkey:6379/0 does not answer", "hush"),
        ("at rediss://h/0?password=hush&db=1", "hush"),
        ("refused dm-Abcdefgh_12345678-xyz", "Abcdefgh"),
        ("refused sk-ant-abcdefghijkl", "abcdefgh"),
        ("Authorization: Bearer hush", "hush"),
    ],
)
def test_secrets_are_taken_out_by_shape(text: str, secret: str) -> None:
    assert secret not in str(cleaned(error=text, errors=[text], more={"error": text}))


def test_long_texts_are_cut() -> None:
    assert len(cleaned(error="x" * 10_000)["error"]) < 600


class Body(BaseModel):
    count: int


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_exceptions_tell_types_and_places_but_not_what_was_at_fault() -> None:
    with pytest.raises(ValueError) as invalid:
        Body.model_validate({"count": "hush"})
    inner = raised(KeyError("hush"))
    chained = raised(RuntimeError("hush"))
    chained.__cause__ = inner
    group = raised(BaseExceptionGroup("hush", [chained, invalid.value, ResponseError("unknown 'X', with args hush")]))
    event = tell_exception(None, "", {"event": "request_failed", "exc_info": group})
    told = "\n".join(event["exception"])
    assert "hush" not in told
    assert "exc_info" not in event
    for word in ("ExceptionGroup", "RuntimeError", "caused by", "KeyError", "ValidationError", "test_logs.py:"):
        assert word in told


def test_what_the_operator_must_know_stays() -> None:
    for error, word in ((StartError("--port", 1, "in use"), "in use"), (OSError(28, "No space left"), "No space")):
        event = tell_exception(None, "", {"exc_info": raised(error)})
        assert word in "\n".join(event["exception"])


def test_an_exception_in_hand_is_told_too() -> None:
    try:
        raise ValueError("hush")
    except ValueError:
        event = tell_exception(None, "", {"exc_info": True})
    assert event["exception"][0] == "ValueError"
    assert tell_exception(None, "", {"event": "x"}) == {"event": "x"}


def test_no_event_of_ours_names_a_field_that_is_redacted() -> None:
    """What llama.cpp says, under the key `message`, would come out as nothing. Counts of tokens stay."""
    root = Path(__file__).parents[4]
    redacted = set()
    for path in (*root.glob("shared/**/*.py"), *root.glob("services/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="logger")), keywords=keywords):
                    fields = {keyword.arg: "text" for keyword in keywords if keyword.arg}
                    redacted |= {name for name, value in redact(None, "", fields).items() if value == REDACTED}
    assert redacted == {"prompt_tokens", "completion_tokens", "n_tokens"}
