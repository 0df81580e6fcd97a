"""The endurance benchmark: what it asks is valid where it should be, and its slope and its counts are right."""

import json
import os
import threading
from collections import Counter
from collections.abc import Callable

import pytest

from bench.endurance.counted import count
from bench.endurance.report import MIB, as_json, grown, growth_per_hour, settled
from bench.endurance.requests import draw
from bench.processes import Held, held
from services.gateway.dialects.chat.request import parse_chat
from services.gateway.dialects.completions.request import parse_completion
from services.gateway.dialects.messages.request import MessagesRequest, parse_messages
from services.gateway.dialects.ollama.request import ChatBody, parse
from services.gateway.dialects.responses.request import parse_responses
from services.gateway.errors import ApiError

PARSERS: dict[str, Callable[[bytes], object]] = {
    "/v1/chat/completions": parse_chat,
    "/v1/completions": parse_completion,
    "/v1/messages": lambda data: parse_messages(data, MessagesRequest),
    "/v1/responses": parse_responses,
    "/api/chat": lambda data: parse(data, ChatBody),
}


def samples(*sizes: float) -> list[Held]:
    return [
        Held(at_s=60.0 * minute, anonymous=int(size * MIB), files=0, threads=1, descriptors=3)
        for minute, size in enumerate(sizes)
    ]


def test_the_slope_is_per_hour_and_by_least_squares() -> None:
    assert growth_per_hour(samples(100, 101, 102, 103)) == pytest.approx(60 * MIB)
    assert growth_per_hour(samples(100, 103, 100, 103)) == pytest.approx(36 * MIB)
    assert growth_per_hour(samples(100)) == 0


def test_only_the_second_half_counts_as_growth() -> None:
    content = as_json({"gateway": samples(50, 90, 100, 100)}, {})
    assert content["gateway"]["bytes_per_hour"] == 0
    assert [held.anonymous for held in settled(samples(1, 2, 3))] == [2 * MIB, 3 * MIB]


def test_types_that_grew_most_come_first() -> None:
    assert grown({"a": 5, "b": 1, "c": 9}, {"a": 6, "b": 4, "c": 8, "d": 1}) == {"b": (1, 4), "a": (5, 6), "d": (0, 1)}


def test_a_process_tells_what_it_holds() -> None:
    before = held(os.getpid(), 1.5)
    with open(os.devnull):
        now = held(os.getpid(), 2.0)
    assert before.anonymous > 10 * MIB
    assert before.files > 0
    assert before.threads >= threading.active_count()
    assert now.descriptors == before.descriptors + 1


def test_objects_are_counted_by_their_type() -> None:
    class Kept:
        pass

    kept = [Kept() for _ in range(3)]
    assert count()[f"{__name__}.{Kept.__qualname__}"] == len(kept)


def test_a_number_draws_the_same_request_and_every_kind_comes() -> None:
    drawn = [draw(number) for number in range(300)]
    assert drawn == [draw(number) for number in range(300)]
    kinds = Counter(request.kind for request in drawn)
    assert set(kinds) == {
        "chat", "choices", "tools", "schema", "wrong", "text", "messages", "responses", "ollama",
    }  # fmt: skip
    assert any(request.left for request in drawn)
    assert {request.body.get("stream") for request in drawn} == {True, False}


@pytest.mark.parametrize("number", range(60))
def test_a_request_is_refused_if_it_is_wrong_and_only_then(number: int) -> None:
    request = draw(number)
    data = json.dumps(request.body).encode()
    if request.wrong:
        with pytest.raises(ApiError):
            PARSERS[request.path](data)
    else:
        PARSERS[request.path](data)
