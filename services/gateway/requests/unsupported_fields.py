"""Refuses, by name, unsupported request fields that would change the answer, unless their value changes nothing."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from services.gateway.errors import invalid

_Harmless = Callable[[Any], bool]


def _among(*harmless: Any) -> _Harmless:
    return lambda value: value in harmless


_off: Final = _among(0, "", [], {})  # also False and 0.0
_RULES: Final[dict[_Harmless, str]] = {
    _off: "functions grammar_lazy grammar_triggers audio web_search_options logits_processors samplers mirostat "
    "mirostat_mode dry_multiplier xtc_probability dynatemp_range smoothing_factor top_a chat_template ignore_eos "
    "min_tokens min_new_tokens stop_token_ids bad_words banned_strings allowed_token_ids include_stop_str_in_output "
    "echo use_beam_search lora truncate_prompt_tokens response_prefix suffix prompt_embeds",
    _among(1): "typical_p tfs best_of tfs_z",
    (lambda value: value is False): "prompt_logprobs",  # 0 asks for some
    (lambda value: value is True): "skip_special_tokens separate_reasoning",
    (lambda value: isinstance(value, int | float) and value <= 0): "top_n_sigma",
    _among("auto", "deepseek"): "reasoning_format",
    _among("auto", "none"): "function_call",
    _among(["text"]): "modalities",
}
_GUIDED: Final = "guided_"  # vLLM's old names
_KNOWN: Final = frozenset({"guided_json", "guided_regex", "guided_choice", "guided_grammar"}) | {
    "guided_decoding_backend"  # changes no answer
}
_INSTEAD: Final = {
    "functions": "'functions' is not supported: offer the same functions as 'tools'.",
    "suffix": "'suffix' is not supported: the models only continue a text.",
    "function_call": "'function_call' is not supported: use 'tools' and 'tool_choice'.",
}
_HARMLESS: Final[dict[str, _Harmless]] = {name: rule for rule, names in _RULES.items() for name in names.split()}


def refuse_unsupported(payload: Mapping[str, Any]) -> None:
    """Raises a 400 `ApiError` naming the first field that asks for something unsupported."""
    for name, value in payload.items():
        guided = name.startswith(_GUIDED) and name not in _KNOWN
        harmless = _HARMLESS.get(name, _off if guided else None)
        if harmless is not None and not harmless(value):
            instead = f"'{name}' is not supported: use 'structured_outputs'." if guided else ""
            sentence = _INSTEAD.get(name, instead or f"'{name}' with this value is not supported.")
            raise invalid(name, sentence, "unsupported_parameter")
