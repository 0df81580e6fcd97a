"""The request that every dialect turns its own into: what to generate, in no dialect. Frozen and checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from shared.wire.messages import Sampling, Speculation

# Variables that the gateway gives a template; a request's `chat_template_kwargs` may not replace them.
RESERVED: Final = frozenset({"messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"})


INPUT: Final = "input"  # the argument of a tool that takes free text


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Messages for the model's chat template, in OpenAI's shape: `role`, `content` as text, and where there are any
    `name`, `tool_calls` (with `arguments` as JSON text), `tool_call_id` and `reasoning_content`.

    `continues`: the last message is the assistant's and the answer goes on from where it ends.
    """

    messages: tuple[Mapping[str, object], ...]
    template_variables: Mapping[str, object] = field(default_factory=dict)
    continues: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A prompt that the model continues as it is: text, or token ids."""

    content: str | tuple[int, ...]


Prompt = Conversation | Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that the model may call. `parameters` is the JSON Schema of its arguments; {}: any object.

    `grammar`: a Lark grammar of its one argument, the text `INPUT`; "": none.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, object] = field(default_factory=dict)
    grammar: str = ""

    def openai(self) -> dict[str, object]:
        """As chat templates expect it."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    """Whether tools may be called, must be or must not; `names` narrows which (empty: any), `parallel` how many."""

    mode: Literal["auto", "none", "required"] = "auto"
    names: tuple[str, ...] = ()
    parallel: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What the answer's text must match: a JSON Schema, a regular expression, or a Lark or GBNF grammar.

    `param` is the request's field that asked for it, for errors.
    """

    kind: Literal["json", "regex", "lark", "gbnf"]
    source: Mapping[str, object] | str
    param: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoning:
    """How to think: `enabled` None is the model's own way, `effort` a word for how much, `budget` a bound in tokens."""

    enabled: bool | None = None
    effort: str | None = None
    budget: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """`choices` answers to each prompt. `model` None means the only one; `max_tokens` None means the room in the
    context."""

    model: str | None
    prompts: tuple[Prompt, ...]
    sampling: Sampling
    choices: int = 1
    max_tokens: int | None = None
    stops: tuple[str, ...] = ()
    top_logprobs: int = -1  # -1: none; 0: the chosen token's only
    speculation: Speculation = Speculation.AUTO
    cache_prompt: bool = True
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    output: Output | None = None
    reasoning: Reasoning = Reasoning()
    or_default: bool = False  # whether the default model may answer if the requested one is not served

    @property
    def converses(self) -> bool:
        """Whether the prompts are conversations; otherwise they are documents."""
        return isinstance(self.prompts[0], Conversation)

    @property
    def prompt_field(self) -> str:
        """The field that the prompts came in, for errors."""
        return "messages" if self.converses else "prompt"
