"""Run by litellm's Python: URL MODEL openai|anthropic text|tools [PROMPT]; prints what it got."""

import json
import os
import sys
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it fetches one
import litellm

NUMBER = {"type": "integer"}
MULTIPLY = {
    "type": "function",
    "function": {
        "name": "multiply",
        "description": "Multiplies two numbers.",
        "parameters": {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}, "required": ["a", "b"]},
    },
}


def main(url: str, model: str, provider: str, task: str, prompt: str = "hi") -> None:
    base = url if provider == "anthropic" else f"{url}/v1"
    options: dict[str, Any] = {"model": f"{provider}/{model}", "api_base": base, "api_key": "none"}
    options |= {"num_retries": 0, "max_tokens": 256}
    messages: list[Any] = [{"role": "user", "content": prompt}]
    if task == "text":
        chunks = litellm.completion(messages=messages, stream=True, **options)
        print("".join(chunk.choices[0].delta.content or "" for chunk in chunks))
        return
    chunks = list(litellm.completion(messages=messages, tools=[MULTIPLY], stream=True, **options))
    message = litellm.stream_chunk_builder(chunks, messages=messages).choices[0].message
    messages.append(message.model_dump())
    for call in message.tool_calls:
        arguments = json.loads(call.function.arguments)
        result = f"works-{arguments['a'] * arguments['b']}"
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    print(litellm.completion(messages=messages, tools=[MULTIPLY], **options).choices[0].message.content)


main(*sys.argv[1:])
