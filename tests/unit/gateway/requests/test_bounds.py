"""What one request may hold is bounded in every dialect, and whoever meets a bound is told which."""

import json
from typing import Any

import pytest

from services.gateway.errors import ApiError
from services.gateway.http.bodies import parse_object
from services.gateway.requests import bounds


def refusal(payload: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse_object(json.dumps(payload).encode())
    assert caught.value.status == 400
    return caught.value


def nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


def test_depth_is_bounded() -> None:
    parse_object(json.dumps({"a": nested(bounds.MAX_DEPTH - 1)}).encode())
    assert refusal({"a": nested(bounds.MAX_DEPTH)}).code == "too_deep"
    assert refusal({"a": nested(900)}).status == 400


@pytest.mark.parametrize("field", bounds.MAX_ITEMS)
def test_lists_of_things_are_bounded_by_name(field: str) -> None:
    most = bounds.MAX_ITEMS[field]
    error = refusal({field: [1] * (most + 1)})
    assert (error.param, error.code) == (field, "too_many_items")
    assert f"at most {most} are allowed" in error.message
    parse_object(json.dumps({field: [1] * most}).encode())


def test_lists_and_objects_are_bounded_together_wherever_they_are() -> None:
    assert refusal({"prompt": [[]] * bounds.MAX_CONTAINERS}).code == "too_many_items"
    wide: dict[str, Any] = {"a": [[[]] * 300] * 400}
    assert refusal(wide).code == "too_many_items"
    parse_object(json.dumps({"prompt": [1] * 1_000_000}).encode())  # token ids cost next to nothing


def test_text_that_cannot_fit_is_refused_before_it_is_read() -> None:
    bounds.check_length("prompt", 512, 81, bounds.MIN_CHARACTERS)
    bounds.check_length("prompt", 1 << 20, 81, 81 << 20)
    with pytest.raises(ApiError, match="prompt is too long") as caught:
        bounds.check_length("messages", 512, 81, bounds.MIN_CHARACTERS + 1)
    assert (caught.value.param, caught.value.code) == ("messages", "context_length_exceeded")
