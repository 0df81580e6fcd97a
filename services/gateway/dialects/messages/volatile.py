"""Takes out text that clients change with every request, so that prompts keep their prefixes.

Known from Claude Code: a billing header at the beginning of its system prompt, and countdowns of the tokens that are
left, each a whole text or its last lines. A countdown that is quoted earlier in a text stays.
"""

import re
from typing import Final

_BILLING: Final = re.compile(r"x-anthropic-billing-header:[^\n]*\n*")
_COUNT: Final = (
    r"(?:<total_tokens>[^<>\n]{1,32} tokens left</total_tokens>|Token usage: \d{1,16}/\d{1,16}; -?\d{1,16} remaining)"
)
_COUNTDOWN: Final = re.compile(rf"(?:\A|\n)(?:{_COUNT}|<system-reminder>\n?{_COUNT}\n?</system-reminder>)\Z")
_LONGEST: Final = 128  # characters that the longest countdown fits into: the rest of a text need not be searched


def without_billing(text: str) -> str:
    """The text without a billing header in its first line."""
    match = _BILLING.match(text)
    return text[match.end() :] if match else text


def without_countdown(text: str) -> str:
    """The text without the countdown that it ends with."""
    whole = text.rstrip()
    match = _COUNTDOWN.search(whole, max(0, len(whole) - _LONGEST))
    return whole[: match.start()].rstrip() if match else text
