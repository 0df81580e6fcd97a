"""Run by LangChain's Python: URL MODEL text|tools|schema|forced [PROMPT [responses]]; prints what it got."""

import sys
from typing import Any

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

NUMBER = {"type": "integer"}
MULTIPLY = {
    "type": "function",
    "function": {
        "name": "multiply",
        "description": "Multiplies two numbers.",
        "parameters": {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}, "required": ["a", "b"]},
    },
}
PRODUCT = {
    "title": "Product",
    "description": "The product of two numbers.",
    "type": "object",
    "properties": {"product": NUMBER},
    "required": ["product"],
    "additionalProperties": False,
}


def main(url: str, model: str, task: str, prompt: str = "", api: str = "") -> None:
    chat = ChatOpenAI(
        model=model,
        base_url=f"{url}/v1",
        api_key="none",
        max_retries=0,
        max_tokens=256,
        use_responses_api=api == "responses",
    )
    if task == "text":
        print("".join(chunk.text for chunk in chat.stream("hi")))
    elif task == "tools":
        print(use(chat.bind_tools([MULTIPLY]), prompt))
    elif task == "schema":
        print(chat.with_structured_output(PRODUCT, method="json_schema", strict=True).invoke(prompt))
    else:
        print(chat.with_structured_output(PRODUCT, method="function_calling").invoke(prompt))


def use(chat: Any, prompt: str) -> str:
    messages: list[Any] = [HumanMessage(prompt)]
    calling: Any = None
    for chunk in chat.stream(messages):
        calling = chunk if calling is None else calling + chunk
    messages.append(calling)
    for call in calling.tool_calls:
        product = call["args"]["a"] * call["args"]["b"]
        messages.append(ToolMessage(f"works-{product}", tool_call_id=call["id"]))
    return str(chat.invoke(messages).text)


main(*sys.argv[1:])
