"""Anthropic's messages as the conversation that chat templates know, where results of calls are messages. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from services.gateway.dialects.messages.blocks import (
    AssistantMessage,
    Block,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolReferenceBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from services.gateway.dialects.messages.volatile import without_billing, without_countdown
from services.gateway.dialects.tool_calls import bare, for_template
from services.gateway.errors import invalid
from services.gateway.requests.types import Conversation

_Turn = tuple[str, list[Block]]  # a role and what it said


def conversation(
    system: Sequence[TextBlock], messages: Sequence[Message], variables: Mapping[str, object]
) -> Conversation:
    """The messages in order, without the texts that clients change with every request.

    As in Anthropic's API, neighbouring messages of one role are one turn, and the answer continues a last message of
    the assistant. Raises a 400 `ApiError` if it cannot.
    """
    texts = [without_countdown(without_billing(block.text)) for block in system]
    rendered: list[dict[str, object]] = [_system(texts)] if any(texts) else []
    turns = list(_turns(messages))
    names = {block.id: block.name for _, blocks in turns for block in blocks if isinstance(block, ToolUseBlock)}
    for role, blocks in turns:
        if role == "user":
            rendered += _user(blocks, names)
        else:
            rendered.append(_assistant(blocks) if role == "assistant" else _system(_texts(blocks)))
    continues = isinstance(messages[-1], AssistantMessage) and not _empty(rendered[-1])
    if continues:
        _check_end(rendered[-1])
    elif isinstance(messages[-1], AssistantMessage):
        del rendered[-1]  # a beginning without text counts as absent
    return Conversation(messages=tuple(rendered), template_variables=variables, continues=continues)


def _turns(messages: Sequence[Message]) -> Iterator[_Turn]:
    turns: list[_Turn] = []
    for message in messages:
        blocks: list[Block] = [*message.content]
        if not isinstance(message, AssistantMessage):
            blocks = [steady for block in blocks if (steady := _steady(block)) is not None]
        if blocks or not message.content:
            turns.append((message.role, blocks))
    for role, group in groupby(turns, key=lambda turn: turn[0]):
        if role == "system":
            yield from group
        else:
            yield role, [block for _, blocks in group for block in blocks]


def _steady(block: Block) -> Block | None:
    """The block without a countdown; None if the block was only a countdown."""
    if isinstance(block, ToolResultBlock):
        content = [steady for inner in block.content if (steady := _steady(inner)) is not None]
        return block.model_copy(update={"content": content})
    if not isinstance(block, TextBlock):
        return block
    text = without_countdown(block.text)
    if text == block.text:
        return block
    return block.model_copy(update={"text": text}) if text else None


def _texts(blocks: Sequence[Block]) -> list[str]:
    return [block.text for block in blocks if isinstance(block, TextBlock)]


def _system(texts: Sequence[str]) -> dict[str, object]:
    return {"role": "system", "content": "\n".join(text for text in texts if text)}


def _user(blocks: Sequence[Block], names: Mapping[str, str]) -> list[dict[str, object]]:
    """Puts results first, because they belong to the calls before."""
    messages = [_result(block, names) for block in blocks if isinstance(block, ToolResultBlock)]
    texts = _texts(blocks)
    if texts or not messages:
        messages.append({"role": "user", "content": "\n".join(texts)})
    return messages


def _result(block: ToolResultBlock, names: Mapping[str, str]) -> dict[str, object]:
    parts = [part.tool_name if isinstance(part, ToolReferenceBlock) else part.text for part in block.content]
    content = "\n".join(parts)
    # Templates have no other way to say that a call failed.
    if block.is_error:
        content = f"Error: {content}"
    name = names.get(block.tool_use_id)
    named = {} if name is None else {"name": name}
    return {"role": "tool", "tool_call_id": bare(block.tool_use_id), **named, "content": content}


def _assistant(blocks: Sequence[Block]) -> dict[str, object]:
    message: dict[str, object] = {"role": "assistant", "content": "".join(_texts(blocks))}
    thinking = [block.thinking for block in blocks if isinstance(block, ThinkingBlock) and block.thinking]
    if thinking:
        message["reasoning_content"] = "\n".join(thinking)
    calls = [
        for_template(block.id, block.name, json.dumps(block.input, ensure_ascii=False))
        for block in blocks
        if isinstance(block, ToolUseBlock)
    ]
    if calls:
        message["tool_calls"] = calls
    return message


def _empty(message: Mapping[str, object]) -> bool:
    return not any(message.get(field) for field in ("content", "reasoning_content", "tool_calls"))


def _check_end(message: Mapping[str, object]) -> None:
    if "tool_calls" in message:
        raise invalid("messages", "'messages' must not end with tool calls: the results of the calls are missing.")
    if not message["content"]:
        raise invalid("messages", "'messages' must not end with thinking alone: an answer can continue only from text.")
