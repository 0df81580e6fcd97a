"""Redis over TLS: an address says it all, for every service; whoever cannot prove its name is not talked to."""

from pathlib import Path

import pytest

from services.drafter.lookup_proposer import LookupProposer
from shared.wire.broker import Broker, BrokerError, connect
from tests.service.verifier.test_verifier import ENDLESS, reference
from tests.stack import client, drafter, verifier
from tests.tls import certificates, tls_proxy
from tests.toy_loaded import toy


async def test_services_work_over_mutual_tls(valkey: Broker, valkey_url: str, model_path: Path, tmp_path: Path) -> None:
    files = certificates(tmp_path)
    async with tls_proxy(valkey_url, files.context) as plain:
        url = f"{plain}?ssl_ca_certs={files.authority}&ssl_certfile={files.client}&ssl_keyfile={files.client_key}"
        async with verifier(url, toy(model_path)), drafter(url, LookupProposer()), client(url, model_path) as one:
            await one.cards(2)
            answer = await one.ask(one.job([5, 6, 7], ENDLESS, 30))
            assert answer.tokens == reference(one, [5, 6, 7], 30)


async def test_a_server_that_is_not_who_it_should_be_is_not_talked_to(valkey_url: str, tmp_path: Path) -> None:
    ours, other, misnamed = (tmp_path / name for name in ("ours", "other", "misnamed"))
    for folder in (ours, other, misnamed):
        folder.mkdir()
    files, stranger, wrong = certificates(ours), certificates(other), certificates(misnamed, "elsewhere.test")
    for context, authority, complaint in (
        (files.context, stranger.authority, "CERTIFICATE_VERIFY_FAILED|certificate verify failed"),
        (wrong.context, wrong.authority, "certificate is not valid for '127.0.0.1'|IP address mismatch"),
        (files.context, None, "certificate verify failed"),  # of no authority that the system knows
    ):
        async with tls_proxy(valkey_url, context) as plain:
            url = f"{plain}?ssl_ca_certs={authority}" if authority else plain
            with pytest.raises(BrokerError, match=complaint):
                async with connect(url):
                    pass


async def test_a_client_without_a_certificate_is_turned_away(valkey_url: str, tmp_path: Path) -> None:
    files = certificates(tmp_path)
    async with tls_proxy(valkey_url, files.context) as plain:
        with pytest.raises(BrokerError, match="no answer"):
            async with connect(f"{plain}?ssl_ca_certs={files.authority}"):
                pass


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("rediss://h/0?ssl_ca_certs=missing.pem", "ssl_ca_certs: there is no such file"),
        ("redis://h/0?ssl_ca_certs=missing.pem", "write rediss://"),
        ("rediss://h/0?ssl_cert_reqs=none", "not ssl_cert_reqs"),
        ("rediss://h/0?ssl_check_hostname=false", "not ssl_check_hostname"),
        ("redis://h/0?socket_timeout=0", "not socket_timeout"),
        ("redis://h/0?protocol=3", "not protocol"),
    ],
)
async def test_what_would_weaken_a_connection_is_refused(url: str, complaint: str) -> None:
    with pytest.raises(BrokerError, match=complaint):
        async with connect(url):
            pass
