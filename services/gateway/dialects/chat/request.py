"""A chat request as clients send it, checked.

The gateway refuses a field that it does not support and that would change the answer, and names it.
"""

from dataclasses import replace

from pydantic import Field

from services.gateway.dialects.chat.messages import ChatMessage, continued
from services.gateway.errors import invalid
from services.gateway.http.bodies import checked, parse_object
from services.gateway.requests.fields import GenerationFields, StreamOptions
from services.gateway.requests.output_fields import OutputFields
from services.gateway.requests.reasoning_fields import ReasoningFields
from services.gateway.requests.tool_fields import ToolFields
from services.gateway.requests.types import Conversation, GenerationRequest
from services.gateway.requests.unsupported_fields import refuse_unsupported


class ChatRequest(GenerationFields, OutputFields, ReasoningFields, ToolFields):
    """The body of POST /v1/chat/completions."""

    messages: list[ChatMessage] = Field(min_length=1)
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=20)
    n: int = Field(1, ge=1, le=8)
    stream: bool = False
    stream_options: StreamOptions = Field(default_factory=StreamOptions)
    continue_final_message: bool = False
    add_generation_prompt: bool = True

    def generation(self) -> GenerationRequest:
        """The request in no dialect, its seed decided. Raises a 400 `ApiError` for contradicting fields."""
        return replace(
            self.asking(self._conversation()),
            choices=self.n,
            top_logprobs=self.top_logprobs if self.logprobs else -1,
            tools=self.offered(),
            tool_choice=self.choice(),
            output=self.output(),
            reasoning=self.thought(),
        )

    def _conversation(self) -> Conversation:
        try:
            continues = continued(self.messages, self.continue_final_message)
        except ValueError as error:
            param = "continue_final_message" if self.continue_final_message else "messages"
            raise invalid(param, f"'{param}': {error}.") from None
        if not (continues or self.add_generation_prompt):
            sentence = "'add_generation_prompt' can be false only where 'continue_final_message' is true."
            raise invalid("add_generation_prompt", sentence, "unsupported_parameter")
        return Conversation(
            messages=tuple(message.variables() for message in self.messages),
            template_variables=self.chat_template_kwargs,
            continues=continues,
        )


def parse_chat(data: bytes) -> ChatRequest:
    """The checked request. Raises a 400 `ApiError` that names the first field at fault."""
    payload = parse_object(data)
    refuse_unsupported(payload)
    chat = checked(ChatRequest, payload)
    if chat.top_logprobs and not chat.logprobs:
        raise invalid("top_logprobs", "'top_logprobs' needs 'logprobs' to be true.")
    return chat
