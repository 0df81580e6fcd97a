"""What clients change in every prompt is taken out; what only looks like it stays."""

import pytest

from services.gateway.dialects.messages.volatile import without_billing, without_countdown

COUNT = "<total_tokens>187655 tokens left</total_tokens>"


def test_a_billing_header_goes_and_the_prompt_after_it_stays() -> None:
    header = "x-anthropic-billing-header: cc_version=2.1.197.123; cc_entrypoint=cli; cch=0a1b2;"
    assert without_billing(header) == ""
    assert without_billing(f"{header}\n\nYou are helpful.\n") == "You are helpful.\n"
    assert without_billing(f"Do not send '{header}'.") == f"Do not send '{header}'."


@pytest.mark.parametrize(
    "countdown",
    [
        COUNT,
        "<total_tokens>Infinite tokens left</total_tokens>",
        f"<system-reminder>\n{COUNT}\n</system-reminder>",
        "<system-reminder>\nToken usage: 12345/200000; 187655 remaining\n</system-reminder>",
        "Token usage: 200007/200000; -7 remaining",
    ],
)
def test_a_countdown_goes_with_the_space_around_it(countdown: str) -> None:
    assert without_countdown(countdown) == without_countdown(f"\n{countdown}\n\n") == ""
    assert without_countdown(f"The result.\n\n{countdown}\n") == "The result."


@pytest.mark.parametrize(
    "text",
    [
        f"```\n{COUNT}\n```",
        f"{COUNT}\nWhat is this?",
        f"It said {COUNT}",
        "<total_tokens>many tokens left</total_tokens> and so on",
        "Token usage: high",
        "  indented and trailing space \n\n",
        "",
    ],
)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert without_countdown(text) == without_billing(text) == text


def test_long_texts_are_looked_at_only_at_their_end() -> None:
    body = "\n" * 1_000_000
    assert without_countdown(f"x{body}{COUNT}") == "x"
    assert without_countdown(f"{COUNT}{body}y") == f"{COUNT}{body}y"
