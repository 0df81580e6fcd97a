"""A real Valkey server, started as the product starts its own."""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import redis

from services.launcher.fleet import embedded
from services.launcher.fleet.ports import LOOPBACK
from tests.patience import HANG_S


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    url: str
    process: "subprocess.Popen[bytes]"

    def stop(self) -> None:
        """End it; may be called twice."""
        self.process.terminate()
        self.process.wait(10)


@contextmanager
def valkey_server(host: str = LOOPBACK, *settings: str) -> Iterator[Server]:
    """An empty server for as long as the block lasts; `settings` are more words of its command line."""
    place = embedded.place(host, 0)
    with tempfile.TemporaryDirectory() as folder:
        command = (*embedded.program(place, Path(folder), {}).command, *settings)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        server = Server(place.url, process)
        try:
            with redis.Redis.from_url(place.url) as client:
                deadline = time.monotonic() + HANG_S
                while time.monotonic() < deadline:
                    with suppress(redis.ConnectionError):
                        client.ping()
                        break
            yield server
        finally:
            server.stop()
