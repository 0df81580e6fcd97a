"""Whatever is sent to whichever route, the gateway answers as its OpenAPI document says: no 500, no hang."""

import gc
import itertools
import json
import re
import socket
import threading
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import urlsplit

import pytest
import redis
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from services.gateway.http.openapi import document
from services.gateway.http.route import Route
from services.gateway.table import ROUTES
from shared.model.llama.model import Model
from tests.examples import few
from tests.hostile import bodies as hostile
from tests.service.gateway.hosted import hosted
from tests.service.scripted import speaking

SCHEMA: Final = schemathesis.openapi.from_dict(document(ROUTES, "0"))
CHECKS: Final = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
TIMEOUT_S: Final = 10
CHAT: Final = "/v1/chat/completions"
# The paths of a route have one handler: one path of each is enough.
OPERATIONS: Final = [
    (route.method, route.paths[0].replace(":.+", ""), mode)
    for route in ROUTES
    if not route.refused and route.media != "text/event-stream"  # which never ends
    for mode in ([GenerationMode.POSITIVE, GenerationMode.NEGATIVE] if route.request else [GenerationMode.POSITIVE])
]
POSTS: Final = [route for route in ROUTES if route.request is not None]
INSIDES: Final = re.compile(r"\b0x[0-9a-f]{6,}|Traceback|site-packages|\.py\b|services\.|<class '|pydantic")
PARSERS: Final = list({route.request: route for route in reversed(POSTS)}.values())


@pytest.fixture(scope="module")
def gateway(valkey_url: str, vocabulary: bytes, model: Model) -> Iterator[str]:
    with hosted(valkey_url, vocabulary, speaking(model, "Hi")) as url:
        yield url


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as one:
        yield one


@pytest.mark.parametrize(("method", "path", "mode"), OPERATIONS)
@settings(
    max_examples=few(16),
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_the_answer_is_one_that_the_document_knows(
    gateway: str, session: requests.Session, method: str, path: str, mode: GenerationMode, data: st.DataObject
) -> None:
    case = data.draw(SCHEMA[path][method].as_strategy(generation_mode=mode))
    response = case.call(base_url=gateway, session=session, timeout=TIMEOUT_S)
    case.validate_response(response, checks=CHECKS)


def answers(gateway: str, session: requests.Session, path: str, bodies: Iterable[tuple[str, bytes]]) -> list[str]:
    """What was not answered as it should be."""
    wrong = []
    for name, body in bodies:
        try:
            response = session.post(gateway + path, data=body, timeout=TIMEOUT_S)
        except requests.RequestException as error:
            wrong.append(f"{name}: {error}")
            continue
        if response.status_code >= 500 or (response.status_code >= 400 and "error" not in response.json()):
            wrong.append(f"{name}: {response.status_code} {response.text[:200]}")
        elif response.status_code >= 400 and INSIDES.search(response.text):
            wrong.append(f"{name} shows our insides: {response.text[:200]}")
    return wrong


@pytest.mark.parametrize(
    "route", [route for route in POSTS if CHAT not in route.paths], ids=lambda route: route.paths[0]
)
def test_hostile_bodies_are_answered(gateway: str, session: requests.Session, route: Route) -> None:
    """On every route but `CHAT`, which the next test asks twice."""
    assert answers(gateway, session, route.paths[0], hostile.bodies()) == []


def test_hostile_bodies_leave_nothing_behind(gateway: str, session: requests.Session, valkey_url: str) -> None:
    def left() -> tuple[int, list[bytes]]:
        with redis.Redis.from_url(valkey_url) as client:
            names = list(client.scan_iter("*"))
            waiting = sum(client.zcard(name) for name in names if b":admitted:" in name)
            return waiting, [name for name in names if client.pttl(name) < 0]

    assert answers(gateway, session, CHAT, hostile.bodies()) == []
    assert left() == (0, [])
    tasks, objects = len(threading.enumerate()), _objects()
    assert answers(gateway, session, CHAT, hostile.bodies()) == []
    assert left() == (0, [])
    assert len(threading.enumerate()) <= tasks
    assert _objects() < objects * 1.02 + 5_000


def _objects() -> int:
    gc.collect()
    return len(gc.get_objects())


@pytest.mark.parametrize("route", PARSERS, ids=lambda route: route.paths[0])
def test_values_of_every_kind_in_every_field_are_answered(
    gateway: str, session: requests.Session, route: Route
) -> None:
    assert route.request is not None
    bodies = itertools.chain(hostile.wrong_types(route.request), hostile.wrong_items(route.request))
    assert answers(gateway, session, route.paths[0], bodies) == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "multipart/form-data; boundary=x"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/json; charset=utf-16"},
        {"Content-Type": "no type at all"},
        {"Content-Encoding": "gzip"},
        {"Content-Encoding": "deflate"},
        {"Content-Encoding": "unheard-of"},
        {"Expect": "the unexpected"},
    ],
    ids=str,
)
def test_strange_headers_are_answered(gateway: str, headers: dict[str, str]) -> None:
    body = json.dumps(hostile.BASE).encode()
    # On a connection of its own: the server closes one whose body it cannot read.
    response = requests.post(f"{gateway}/v1/chat/completions", data=body, headers=headers, timeout=TIMEOUT_S)
    assert response.status_code < 500


@pytest.mark.parametrize(
    "junk",
    [
        b"Transfer-Encoding: chunked\r\n\r\nzzz\r\n{}\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n{}\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"Content-Length: -1\r\n\r\n{}",
        b"Content-Length: abc\r\n\r\n{}",
        b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"Content-Length: 100\r\n\r\n{}",
    ],
)
def test_a_broken_transfer_ends(gateway: str, session: requests.Session, junk: bytes) -> None:
    address = urlsplit(gateway)
    with socket.create_connection((address.hostname, address.port), TIMEOUT_S) as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + junk)
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert not answer.startswith(b"HTTP/1.1 5")
    assert session.get(f"{gateway}/health", timeout=TIMEOUT_S).status_code == 200


def test_the_served_document_is_the_routes(gateway: str, session: requests.Session) -> None:
    served = session.get(f"{gateway}/openapi.json", timeout=TIMEOUT_S).json()
    assert served["paths"] == document(ROUTES, "0")["paths"]
