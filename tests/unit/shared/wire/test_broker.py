"""Addresses of Redis: which are refused, and what of them people may read."""

import pytest

from shared.wire import broker
from shared.wire.broker import BrokerError


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://:secret@host:6379/3", "redis://***@host:6379/3"),
        ("rediss://user:secret@host:6380/0", "rediss://***@host:6380/0"),
        ("redis://:sec@ret/secret@host:1/0", "redis://***@host:1/0"),
        ("redis://host:1/0?password=sec@ret&db=2", "redis://host:1/0?password=***&db=2"),
        ("redis://user:secret@[::1]:1/0", "redis://***@[::1]:1/0"),
        (":secret@host:6379", "***@host:6379"),
        ("unix:///run/valkey.sock", "unix:///run/valkey.sock"),
    ],
)
def test_credentials_are_not_shown(url: str, shown: str) -> None:
    assert broker.redacted(url) == shown
    assert "sec" not in str(BrokerError(url, "no answer"))


@pytest.mark.parametrize(
    "url", ["foo", "host:6379", "http://host", "redis:host", "redis://host:port/0", ":secret@host"]
)
async def test_what_is_no_address_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(BrokerError, match=r"^--redis .*: an address such as redis://host:6379/0$") as caught:
        async with broker.connect(url):
            pass
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["redis://host", "rediss://:p@host:1/2", "unix:///run/valkey.sock", "redis://[::1]:1/0"]
)
def test_what_is_an_address_is_not_refused(url: str) -> None:
    broker.check(url)
