"""The other engines: their settings as command lines, and one running server of each.

*native* is llama-server built from the llama.cpp that draftmesh uses; *newest* is the server of the wheel xllamacpp.
Both may use both cores; a setting says how many threads target and draft get. A server that nobody asks sleeps.
"""

import asyncio
import os
import time
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

import aiohttp

from services.launcher.fleet.child import Child, Program
from services.launcher.fleet.cores import Cores, forking_on
from services.launcher.fleet.ports import LOOPBACK, claim
from services.launcher.fleet.stack import POLL_S, START_S, StackError
from shared.errors import StartError

LONGEST: Final = 16  # tokens of the longest draft that is tried
P_MINS: Final = (0.5, 0.75, 0.9)
_SCRIPT: Final = Path(__file__).with_name("xllamacpp_server.py")


class PeerEngine(StrEnum):
    """Which peer."""

    NATIVE = "native"
    NEWEST = "newest"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSetting:
    """One way to run a peer: plain, with a draft model, or with one of its lookups."""

    engine: PeerEngine
    draft: Path | None = None
    draft_max: int = 0
    probabilistic: bool = False
    p_min: float = 0.0  # a draft ends before a token that is less likely than this
    ngram: str = ""
    threads: int = 1  # of the target, and of the draft: they compute in turn

    @property
    def plain(self) -> bool:
        return self.draft is None and not self.ngram

    @property
    def name(self) -> str:
        """What tables call it."""
        if self.draft is not None:
            sure = f" p>={self.p_min:g}" if self.p_min else ""
            return f"{self.engine} n={self.draft_max}{' probabilistic' if self.probabilistic else ''}{sure}"
        return f"{self.engine} {self.ngram or 'plain'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """Where the peers are; None: not to be measured."""

    llama_server: Path | None
    xllamacpp_python: Path | None

    @property
    def engines(self) -> list[PeerEngine]:
        paths = {PeerEngine.NATIVE: self.llama_server, PeerEngine.NEWEST: self.xllamacpp_python}
        return [engine for engine, path in paths.items() if path is not None]

    def check(self) -> None:
        """Raise `StartError` for a path that is no program."""
        for option, path in (
            ("--llama-server", self.llama_server),
            ("--xllamacpp-python", self.xllamacpp_python),
        ):
            if path is not None and not os.access(path, os.X_OK):
                raise StartError(option, path, "is no program; bench/README.md says how to set the peers up")


def draft_settings(engine: PeerEngine, draft: Path, threads: int = 1) -> list[PeerSetting]:
    """Every setting worth trying with a draft model, plain first."""
    plain = PeerSetting(engine=engine, threads=threads)
    drafted = replace(plain, draft=draft)
    widths = (2, 4, 8, LONGEST) if engine is PeerEngine.NATIVE else (4, 8, LONGEST)
    settings = [plain, *(replace(drafted, draft_max=n) for n in widths)]
    # Only long drafts gain from ending early.
    settings += [replace(drafted, draft_max=LONGEST, p_min=p_min) for p_min in P_MINS]
    if engine is PeerEngine.NEWEST:
        settings += [replace(drafted, draft_max=n, probabilistic=True) for n in (4, 8)]
    return settings


def lookup_settings(engine: PeerEngine) -> list[PeerSetting]:
    """The peer's lookups that are compared with ours, plain first."""
    return [
        PeerSetting(engine=engine),
        *(PeerSetting(engine=engine, ngram=ngram) for ngram in ("ngram-mod", "ngram-simple")),
    ]


def command(
    setting: PeerSetting, binaries: Binaries, *, target: Path, port: int, ctx: int, slots: int = 1
) -> tuple[str, ...]:
    """The server's command line. `ctx` tokens per slot. Raises `StartError` if the engine is not here."""
    if setting.engine is PeerEngine.NEWEST:
        return _newest(setting, binaries, target, port, ctx * slots, slots)
    if binaries.llama_server is None:
        raise StartError("--llama-server", "''", "must name llama-server for the native peer")
    draft: tuple[str, ...] = ()
    threads = str(setting.threads)
    if setting.draft is not None:
        draft = (
            *("--spec-type", "draft-simple", "--spec-draft-model", str(setting.draft)),
            *("--spec-draft-n-max", str(setting.draft_max), "--spec-draft-p-min", f"{setting.p_min:g}"),
            *("--spec-draft-threads", threads, "--spec-draft-poll", "0"),
        )
    elif setting.ngram:
        draft = ("--spec-type", setting.ngram)
    return (
        str(binaries.llama_server),
        *("--model", str(target), "--host", LOOPBACK, "--port", str(port), "--no-ui"),
        *("--threads", threads, "--threads-batch", threads, "--threads-http", "2", "--poll", "0"),
        *("--ctx-size", str(ctx * slots), "--parallel", str(slots), "--cache-ram", "0"),
        *draft,
    )


def _newest(setting: PeerSetting, binaries: Binaries, target: Path, port: int, ctx: int, slots: int) -> tuple[str, ...]:
    if binaries.xllamacpp_python is None:
        raise StartError("--xllamacpp-python", "''", "must name the Python that has xllamacpp for the newest peer")
    draft: tuple[str, ...] = ()
    if setting.draft is not None:
        draft = ("--draft-model", str(setting.draft), "--draft-max", str(setting.draft_max))
        draft += ("--p-min", f"{setting.p_min:g}")
        draft += ("--probabilistic",) if setting.probabilistic else ()
    elif setting.ngram:
        draft = ("--ngram", setting.ngram)
    return (
        *(str(binaries.xllamacpp_python), str(_SCRIPT), "--model", str(target)),
        *("--port", str(port), "--ctx", str(ctx), "--slots", str(slots), "--threads", str(setting.threads)),
        *draft,
    )


class PeerServer:
    """One running peer on `cores`; an async context manager that ends it."""

    def __init__(
        self,
        setting: PeerSetting,
        binaries: Binaries,
        *,
        target: Path,
        ctx: int,
        slots: int = 1,
        cores: Cores,
        log: Path,
    ) -> None:
        port = claim(LOOPBACK, 0)
        words = command(setting, binaries, target=target, port=port, ctx=ctx, slots=slots)
        self.setting = setting
        self._url = f"http://{LOOPBACK}:{port}"
        self._cores = cores
        self._child = Child(Program(name=setting.name, command=words, stage=0, environment=_clean(os.environ)), log)

    async def __aenter__(self) -> Self:
        with forking_on(self._cores):
            await self._child.start()
        timeout = aiohttp.ClientTimeout(total=None, sock_read=START_S)
        # llama-server closes a connection after a stream, which a client that would use it again sees too late.
        connector = aiohttp.TCPConnector(force_close=True)
        self.http = aiohttp.ClientSession(self._url, timeout=timeout, connector=connector)
        try:
            await self._until_ready()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def _until_ready(self) -> None:
        limit = time.monotonic() + START_S
        while not await self._answers():
            if not self._child.alive:
                raise StackError(f"{self.setting.name} ended: {self._child.error_line()}")
            if time.monotonic() > limit:
                raise StackError(f"{self.setting.name} was not ready within {START_S:.0f} s")
            await asyncio.sleep(POLL_S)

    async def _answers(self) -> bool:
        try:
            async with self.http.get("/health") as response:
                return response.status == 200  # 503 while it loads
        except aiohttp.ClientError:
            return False

    async def _stop(self) -> None:
        await self.http.close()
        self._child.kill()  # it holds nothing that anyone would miss
        await self._child.wait()


def _clean(environment: "os._Environ[str]") -> dict[str, str]:
    """Without what would change a peer's settings, or show it our packages."""
    foreign = ("LLAMA_ARG_", "DRAFTMESH_", "PYTHONPATH")
    return {name: value for name, value in environment.items() if not name.startswith(foreign)}
