"""A server's TLS where the server has none: certificates of an authority made here, and a proxy that ends TLS."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import trustme


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in PEM: an authority, and a client's certificate with its key."""

    authority: Path
    client: Path
    client_key: Path
    context: ssl.SSLContext  # the server's; it asks clients for certificates of the same authority


def certificates(folder: Path, name: str = "127.0.0.1") -> Certificates:
    """For a server called `name`."""
    authority = trustme.CA()
    server, client = authority.issue_cert(name), authority.issue_cert("client.test")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    server.configure_cert(context)
    authority.configure_trust(context)
    made = Certificates(folder / "ca.pem", folder / "client.pem", folder / "client.key", context)
    authority.cert_pem.write_to_path(made.authority)
    client.cert_chain_pems[0].write_to_path(made.client)
    client.private_key_pem.write_to_path(made.client_key)
    return made


@asynccontextmanager
async def tls_proxy(url: str, context: ssl.SSLContext) -> AsyncIterator[str]:
    """`url`'s server over TLS, as a `rediss://` address without parameters."""
    target = urlsplit(url)
    pipes: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(target.hostname, target.port)
        for source, sink in ((reader, back), (there, writer)):
            pipe = asyncio.create_task(_copy(source, sink))
            pipes.add(pipe)
            pipe.add_done_callback(pipes.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    try:
        yield f"rediss://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    finally:
        server.close()
        for pipe in list(pipes):
            pipe.cancel()
        await asyncio.gather(*pipes, return_exceptions=True)


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
    sink.close()
