"""Requests of Claude Code's shape, none of its words: reminders as system messages, two dozen tools, volatile texts."""

from typing import Any

TOOL_COUNT = 24
_SENTENCE = "It takes what the fields below say and gives back what came of it, or an error that says why not. "


def tool(index: int) -> dict[str, Any]:
    """A tool with about 2.5 KB of description and a schema with the keywords that such schemas use."""
    return {
        "name": f"Tool{index}",
        "description": f"Tool number {index}. " + _SENTENCE * 20,
        "input_schema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": _SENTENCE, "maxLength": 4096, "pattern": "^/.*$"},
                "limit": {"type": "integer", "exclusiveMinimum": 0, "default": 100},
                "mode": {"anyOf": [{"const": "fast"}, {"enum": ["slow", "exact"]}]},
                "items": {"type": "array", "maxItems": 8, "items": {"type": "string", "format": "uri"}},
                "labels": {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {}},
            },
            "required": ["path"],
            "additionalProperties": False,
        },
    }


def request(*turns: dict[str, Any], number: int = 1) -> dict[str, Any]:
    """The `number`th request of a session; `turns` follow the first question."""
    marked = {"cache_control": {"type": "ephemeral"}}
    reminder = f"<system-reminder>\nThe date is 2026-11-29. {_SENTENCE}\n</system-reminder>"
    return {
        "model": "smol",
        "max_tokens": 32000,
        "stream": True,
        "system": [
            {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.197; cch={number:05x};"},
            {"type": "text", "text": "You are an agent.", **marked},
            {"type": "text", "text": "\nYou help with software.\n\n" + _SENTENCE * 50, **marked},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": reminder}, {"type": "text", "text": "Hi", **marked}]},
            {"role": "system", "content": "Kinds of agents:\n" + f"- one: {_SENTENCE}\n" * 20},
            *turns,
            {"role": "system", "content": f"<total_tokens>{15_000_000 - number} tokens left</total_tokens>"},
        ],
        "tools": [*map(tool, range(TOOL_COUNT - 1)), {"name": "Last", "input_schema": {"type": "object"}}],
        "metadata": {"user_id": '{"device_id": "d", "account_uuid": "", "session_id": "s"}'},
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
    }
