"""Bodies that no client should send, made for every route alike: each must get an answer, and none a 500."""

import json
from collections.abc import Iterator
from typing import Any, Final

from pydantic import BaseModel

BASE: Final[dict[str, Any]] = {
    "model": "smol",
    "messages": [{"role": "user", "content": "Hi"}],
    "prompt": "Hi",
    "input": "Hi",
    "content": "Hi",
    "max_tokens": 4,
    "stream": False,
}
_LONG: Final = "word " * 200_000
_HUGE: Final = 10**400
_WRONG: Final[tuple[Any, ...]] = (None, True, -1, 1.5, _HUGE, "", "x", [None], [[]], {}, {"type": "x"})
_TEXTS: Final = ("messages", "prompt", "input", "content")


def bodies() -> Iterator[tuple[str, bytes]]:
    """Hostile bodies by what is wrong with them."""
    yield "nothing", b""
    yield "no JSON", b"hello"
    yield "half a body", json.dumps(BASE).encode()[:-7]
    for name, value in (("array", []), ("text", "x"), ("number", 1), ("null", None), ("true", True)):
        yield f"no object but {name}", json.dumps(value).encode()
    yield "open brackets", b'{"messages":' + b"[" * 100_000
    yield "open braces", b'{"a":' * 100_000
    yield "deep array", b'{"messages":' + b"[" * 5_000 + b"]" * 5_000 + b"}"
    for field in (*_TEXTS, "tools", "format", "options", "metadata"):
        yield f"deep {field}", _with(field, _deep(150))
        yield f"deeper {field}", _with(field, _deep(900))
    for number in (b"NaN", b"Infinity", b"-Infinity", b"1e400", b"-1e400", b"1" * 5_000, b"0." + b"1" * 5_000):
        for field in ("temperature", "max_tokens", "seed", "top_k"):
            yield f"{field} {number[:9]!r}", json.dumps({**BASE, field: "?"}).encode().replace(b'"?"', number)
    for escaped in (b"\\ud800", b"\\udc00x", b"\\ud83d\\ud83d"):
        yield f"surrogate {escaped!r}", json.dumps(BASE).encode().replace(b"Hi", escaped)
    yield "bad UTF-8", json.dumps(BASE).encode().replace(b"Hi", b"\xff\xfe")
    yield "overlong UTF-8", json.dumps(BASE).encode().replace(b"Hi", b"\xc0\xaf")
    yield "UTF-16", json.dumps(BASE).encode("utf-16")
    yield "a byte order mark", b"\xef\xbb\xbf" + json.dumps(BASE).encode()
    yield "zero bytes", json.dumps(BASE).encode().replace(b"Hi", b"\\u0000\\u0000")
    yield "duplicate keys", b'{"model":"other",' * 2 + json.dumps(BASE).encode()[1:-1] + b',"messages":[]' + b"}" * 2
    yield "ten thousand fields", json.dumps({**BASE, **{f"field{i}": i for i in range(10_000)}}).encode()
    for field in ("prompt", "input", "content", "model", "system", "instructions"):
        yield f"long {field}", _with(field, _LONG)
    yield "a long message", _with("messages", [{"role": "user", "content": _LONG}])
    yield "a long stop", _with("stop", [_LONG])
    yield "many messages", _with("messages", [{"role": "user", "content": "x"}] * 2_000)
    yield "many stops", _with("stop", ["x"] * 10_000)
    for count in (100, 20_000):
        function = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        yield f"{count} tools", _with("tools", [function] * count)
        yield (
            f"{count} parts",
            _with("messages", [{"role": "user", "content": [{"type": "text", "text": "x"}] * count}]),
        )
    yield "a million numbers", _with("prompt", [1] * 1_000_000)
    yield "a million empty messages", _with("messages", [{}] * 1_000_000)
    for field in ("n", "best_of", "top_logprobs", "logprobs", "max_tokens", "num_ctx", "num_predict"):
        yield f"a huge {field}", _with(field, 1_000_000)
    for template in ("{{ ''.__class__.__mro__ }}", "{% for i in range(10**9) %}x{% endfor %}", "{{ 'x' * 10**10 }}"):
        for field in ("chat_template", "template"):
            yield f"{field} {template}", _with(field, template)
        yield f"kwargs {template}", _with("chat_template_kwargs", {"chat_template": template, "messages": []})
        yield f"text {template}", _with("messages", [{"role": template, "content": template}])
    for pattern in ("(a*)*b", "(" * 1_000, "[" * 1_000, "a{1,100000}", "(?=a)", "\\" * 3):
        yield f"regex {pattern[:20]}", _with("regex", pattern)
        yield f"pattern {pattern[:20]}", _with("format", {"type": "object", "properties": {"a": {"pattern": pattern}}})
    for grammar in ("start: start", "start: ", 'start: "a"*' + " start" * 1_000, "%ignore", "root ::= root"):
        yield f"grammar {grammar[:20]}", _with("grammar", grammar)
        yield f"structured grammar {grammar[:20]}", _with("structured_outputs", {"grammar": grammar})
    for name in ("__class__", "constructor", "__proto__", "$ref", "messages", "\x00", "x" * 100_000):
        yield f"a field called {name[:20]}", _with(name, {"$ref": "#"})
    yield "a schema of itself", _with("format", {"$ref": "#"})
    yield "a schema from elsewhere", _with("format", {"$ref": "http://192.0.2.1/schema.json"})
    for url in ("file:///etc/passwd", "http://192.0.2.1/", "data:image/png;base64,AAAA", "x" * 100_000):
        part = {"type": "image_url", "image_url": {"url": url}}
        yield f"an image {url[:20]}", _with("messages", [{"role": "user", "content": [part]}])
        yield f"a base64 image {url[:20]}", _with("images", [url])
    yield "a long role", _with("messages", [{"role": _LONG, "content": "x"}])


def wrong_types(model: type[BaseModel]) -> Iterator[tuple[str, bytes]]:
    """A body for each of the model's fields and each kind of value that does not belong there."""
    for field in sorted(set(model.model_fields) | set(_TEXTS)):
        for value in _WRONG:
            yield f"{field}={str(value)[:20]}", _with(field, value)


def wrong_items(model: type[BaseModel]) -> Iterator[tuple[str, bytes]]:
    """A body for each field of a message, a call, a part and a tool, and each kind of value."""
    items = {"messages": _messages, "input": _inputs, "tools": _tools}
    for field, broken in items.items():
        for value in _WRONG if field in model.model_fields else ():
            for item in broken(value):
                yield f"{field}: {str(item)[:80]}", _with(field, item)


def _messages(value: Any) -> Iterator[list[Any]]:
    first = BASE["messages"]
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    for field in ("content", "tool_calls", "tool_call_id", "name", "reasoning_content", "thinking"):
        for role in ("assistant", "tool"):
            yield [*first, {"role": role, "content": "x", field: value}]
    for broken in (value, {**call, "function": value}, {**call, "id": value}, {"function": {"name": value}}):
        yield [*first, {"role": "assistant", "content": "", "tool_calls": [broken]}]
    for part in _parts(value):
        yield [{"role": "user", "content": [part]}]
    yield [{"role": value, "content": "x"}]


def _inputs(value: Any) -> Iterator[list[Any]]:
    yield [value]
    for kind in ("message", "function_call", "function_call_output", "reasoning", "item_reference"):
        for field in ("id", "role", "content", "call_id", "name", "arguments", "output", "summary"):
            yield [{"type": kind, field: value}]
    for part in _parts(value):
        yield [{"role": "user", "content": [part]}]


def _parts(value: Any) -> Iterator[Any]:
    yield from (value, {"type": value}, {"type": "text", "text": value}, {"type": "tool_result", "content": value})
    yield {"type": "tool_use", "id": value, "name": "f", "input": value}


def _tools(value: Any) -> Iterator[list[Any]]:
    yield [value]
    yield [{"type": "function", "function": value}]
    yield [{"type": value, "name": "f"}]
    for field in ("name", "description", "parameters", "input_schema"):
        yield [{"type": "function", "function": {"name": "f", field: value}}]
        yield [{"type": "function", "name": "f", field: value}]


def _with(field: str, value: Any) -> bytes:
    return json.dumps({**BASE, field: value}).encode()


def _deep(levels: int) -> Any:
    value: Any = "x"
    for level in range(levels):
        value = [value] if level % 2 else {"type": "object", "items": value}
    return value
