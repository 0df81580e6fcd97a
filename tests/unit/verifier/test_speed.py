"""How fast plain decoding would be is told of the same rounds and requests, so that the ratio means something."""

import pytest

from services.verifier.speed import WINDOW_S, Speed


def decode(speed: Speed, now_s: float, *, rounds: int = 1, **changes: float) -> None:
    values = {"ms": 12.0, "idle_ms": 0.0, "decode_ms": 10.0, "plain_ms": 10.0, "requests": 1, "tokens": 1}
    for _ in range(rounds):
        speed.ended(now_s=now_s, prefill=False, **{**values, **changes})  # type: ignore[arg-type]


def test_before_the_first_round_nothing_is_claimed() -> None:
    speed = Speed()
    assert (speed.speedup, speed.tokens_per_round, speed.rates(5.0)[0]) == (0.0, 0.0, 0.0)


def test_plain_decoding_is_as_fast_as_plain_decoding_whatever_a_round_takes_beside() -> None:
    speed = Speed()
    decode(speed, 1.0, rounds=20)
    assert speed.speedup == pytest.approx(1.0)


def test_drafts_are_worth_their_tokens_over_the_time_that_their_rows_took() -> None:
    speed = Speed()
    decode(speed, 1.0, rounds=20, tokens=3, ms=17.0, decode_ms=15.0)
    assert speed.speedup == pytest.approx(3 * 12 / 17)
    assert speed.tokens_per_round == pytest.approx(3.0)


def test_waiting_for_drafts_counts_against_them() -> None:
    speed = Speed()
    decode(speed, 1.0, rounds=20, ms=22.0, idle_ms=10.0)
    assert speed.speedup == pytest.approx(12 / 22)


def test_tokens_per_round_are_those_of_one_request() -> None:
    speed = Speed()
    decode(speed, 1.0, rounds=5, requests=4, tokens=8)
    assert speed.tokens_per_round == pytest.approx(2.0)


def test_rates_are_of_the_last_seconds_and_the_speed_up_stays_told() -> None:
    speed = Speed()
    decode(speed, 1.0, rounds=50, tokens=2)
    assert speed.rates(2.0) == pytest.approx((100 / WINDOW_S, 50 / WINDOW_S))
    assert speed.rates(1.1 + WINDOW_S)[0] == 0.0
    assert speed.speedup == pytest.approx(2.0)


def test_reading_a_prompt_says_nothing_about_drafts() -> None:
    speed = Speed()
    speed.ended(now_s=1.0, ms=900.0, idle_ms=0.0, decode_ms=890.0, plain_ms=10.0, requests=1, tokens=1, prefill=True)
    assert speed.speedup == 0.0
    assert speed.rates(1.0) == pytest.approx((1 / WINDOW_S, 1 / WINDOW_S))
