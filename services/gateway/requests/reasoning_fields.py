"""How much to think, under every name that servers gave it."""

from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, Field

from services.gateway.requests.types import Reasoning

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
_EFFORTS: Final = get_args(Effort)
Budget = Annotated[int | None, Field(ge=-1)]  # in tokens; -1: no bound


class ReasoningOptions(BaseModel):
    """OpenRouter's field."""

    effort: Effort | None = None
    max_tokens: Budget = None
    enabled: bool | None = None
    exclude: bool | None = None


class ThinkingOptions(BaseModel):
    """Anthropic's field, as gateways pass it on."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Budget = None


class ReasoningFields(BaseModel):
    """The fields of a chat request. If a request has several, the smallest budget and the clearest word win."""

    reasoning_effort: Effort | None = None
    reasoning: ReasoningOptions = ReasoningOptions()
    thinking: ThinkingOptions | None = None
    enable_thinking: bool | None = None
    thinking_token_budget: Budget = None
    thinking_budget: Budget = None
    reasoning_budget: Budget = None
    reasoning_budget_tokens: Budget = None
    include_reasoning: bool = True
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)

    @property
    def shows_reasoning(self) -> bool:
        """Whether the answer includes the thinking."""
        return self.include_reasoning and not self.reasoning.exclude

    def thought(self) -> Reasoning:
        """How to think, in no dialect."""
        effort = self._effort()
        return Reasoning(enabled=self._enabled(effort), effort=effort, budget=self._budget())

    def _effort(self) -> str | None:
        # The template gets every word, so a word that only it knows is left to it.
        template = self.chat_template_kwargs.get("reasoning_effort")
        return self.reasoning_effort or self.reasoning.effort or (template if template in _EFFORTS else None)

    def _enabled(self, effort: str | None) -> bool | None:
        thinking = {"enabled": True, "disabled": False}.get(self.thinking.type) if self.thinking else None
        template = (self.chat_template_kwargs.get(name) for name in ("enable_thinking", "thinking"))
        off = False if effort == "none" else None
        said = (self.enable_thinking, self.reasoning.enabled, thinking, *template, off)
        return next((value for value in said if isinstance(value, bool)), None)

    def _budget(self) -> int | None:
        budgets = (
            self.thinking_token_budget,
            self.thinking_budget,
            self.reasoning_budget,
            self.reasoning_budget_tokens,
            self.reasoning.max_tokens,
            self.thinking.budget_tokens if self.thinking else None,
        )
        return min((budget for budget in budgets if budget is not None and budget >= 0), default=None)
