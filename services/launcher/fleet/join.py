"""`draftmesh join`: lets this machine guess ahead for a fleet, and says how much that helps."""

import asyncio
import getpass
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from redis.exceptions import AuthenticationError
from rich.console import Console

from services.launcher.backends import signs
from services.launcher.display import Display
from services.launcher.fleet.child import Child, Program, service_command
from services.launcher.fleet.machines import Token
from services.launcher.fleet.supervised_run import SupervisedRun, with_logs
from services.launcher.forecast.join_report import JoinReport
from services.launcher.models import fetching
from shared.errors import StartError
from shared.fleet.registry import Registry
from shared.model import hardware
from shared.wire.broker import DISCONNECTED, BrokerError, connect

_EXAMPLE: Final = "draftmesh join redis://192.168.1.5:7072/0"
_VARIABLE: Final = "DRAFTMESH_TOKEN"
_EXPOSED: Final = (
    f"a password on a command line can be seen by every user of this machine; join asks for it, or set {_VARIABLE} or"
    " --token-file"
)
_PINGS: Final = 11
_LOOK_S: Final = 1.0


def run(url: str, token_file: str, draft_model: str, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Help until SIGINT or SIGTERM; the exit status. Raises `StartError` before anything is started.

    Searches the network without a `url`. The drafter gets `arguments`, and `environment` besides ours.
    """
    token = given(token_file)
    console = Console(highlight=False)
    display = Display(console)
    display.close()  # lines instead of a table, because there is one process
    if urlsplit(url).password:
        display.say(_EXPOSED, "yellow")
    url = address(url or discover(display.say), token)
    if not token and asks(url):
        url = address(url, _asked())
    round_trip_ms = asyncio.run(_reach(url))
    display.say(f"the fleet's Redis answers in {round_trip_ms:.1f} ms")
    model: tuple[str, ...] = ()
    if draft_model:  # downloaded here, so that people see it and Ctrl-C ends it
        if told := signs.missing(hardware.look):
            display.say(told, "yellow")
        model = ("--draft-model", str(fetching.find(draft_model, "--draft-model", console)))
    drafter = Program(
        name="drafter",
        command=(*service_command("drafter"), *model, *arguments),
        stage=0,
        environment={**os.environ, **environment, _VARIABLE: "", "DRAFTMESH_REDIS": url},
    )
    return with_logs(
        lambda folder: asyncio.run(JoinedDrafter(url, drafter, folder, display, round_trip_ms).run()),
        lambda folder: display.say(f"the drafter's log is kept in {folder}"),
    )


def given(token_file: str) -> Token | None:
    """The token in the file or in the environment. Raises `StartError`."""
    if not token_file:
        text = os.environ.get(_VARIABLE, "")
        return Token.read(text, _VARIABLE) if text else None
    try:
        return Token.read(Path(token_file).read_text(), token_file)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise StartError("--token-file", token_file, f"cannot be read ({reason})") from None


def address(url: str, token: Token | None) -> str:
    """The address of the fleet's Redis, with the token if the address has no password."""
    scheme, found, rest = url.partition("://")
    if token is None or not found or "@" in rest:
        return url
    return f"{scheme}://{token.user}:{token.password}@{rest}"


def asks(url: str) -> bool:
    """Whether that Redis wants a password and the address has none. Raises `BrokerError` if it does not answer."""
    try:
        asyncio.run(_reach(url))
    except BrokerError as error:
        if "@" not in url and "authentication" in str(error).lower():
            return True
        raise
    return False


def discover(say: Callable[[str], None]) -> str:
    """The only fleet that announces itself in this network. Raises `StartError` if there is none or more than one."""
    from services.launcher.fleet.beacon import SEARCH_S, MulticastUnavailable, search

    say(f"looking for fleets in this network for {SEARCH_S:.0f} s")
    try:
        fleets = asyncio.run(search())
    except MulticastUnavailable as reason:
        raise StartError(
            "URL", "(missing)", f"cannot search this network ({reason}); give the address, as in {_EXAMPLE}"
        ) from None
    for fleet in fleets:
        say(f"found {fleet}")
    if not fleets:
        raise StartError(
            "URL", "(missing)", f"no fleet announces itself in this network; give the address, as in {_EXAMPLE}"
        )
    if len(fleets) > 1:
        raise StartError("URL", "(missing)", f"there are {len(fleets)} fleets; say which one, as in {_EXAMPLE}")
    return fleets[0].url()


def _asked() -> Token:
    text = getpass.getpass("join token, as `up --lan` prints it: ").strip() if sys.stdin.isatty() else ""
    if not text:
        raise StartError("--token-file", "(missing)", f"a file with the token that `up --lan` prints, or {_VARIABLE}")
    return Token.read(text, "(typed)")


class JoinedDrafter:
    """This machine's drafter, and the lines about it."""

    def __init__(self, url: str, drafter: Program, folder: Path, display: Display, round_trip_ms: float) -> None:
        self._url, self._drafter, self._display = url, drafter, display
        self._session = SupervisedRun(folder, display, "left; nothing is lost")
        self._report = JoinReport(socket.gethostname(), round_trip_ms)

    async def run(self) -> int:
        """Help until a signal: 0, or the status that a failed drafter demands."""
        return await self._session.run(self._live)

    async def _live(self) -> None:
        async with connect(self._url) as broker, asyncio.TaskGroup() as group:
            group.create_task(self._session.supervisor.keep_logs(), name="logs")
            child = await self._session.supervisor.start(self._drafter, group)
            await self._tell(Registry(broker.redis), child)

    async def _tell(self, registry: Registry, child: Child) -> None:
        """Say what is new, for ever."""
        away = False
        while True:
            try:
                async with asyncio.timeout(5):
                    cards = await registry.list()
            except DISCONNECTED as error:
                if not away:
                    trouble = "refuses the token" if isinstance(error, AuthenticationError) else "does not answer"
                    self._display.say(f"the fleet's Redis {trouble}; trying again and again", "yellow")
                away = True
            else:
                if away:
                    self._display.say("the fleet's Redis answers again")
                away = False
                for line in self._report.lines(cards, child.pid, time.monotonic()):
                    self._display.say(line)
            await asyncio.sleep(_LOOK_S)


async def _reach(url: str) -> float:
    """The round trip to that Redis: the median of some pings, in milliseconds. Raises `BrokerError`."""
    times = []
    async with connect(url) as broker:
        for _ in range(_PINGS):
            began = time.perf_counter()
            await broker.redis.ping()
            times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)
