"""`draftmesh doctor`: what works here and what does not, check by check, and whether speculation will pay."""

import asyncio
import socket
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from services.launcher.backends import command, signs
from services.launcher.facts import placing
from services.launcher.forecast import stopwatch
from services.launcher.models import fetching
from services.launcher.settings.up_options import DoctorOptions
from shared.errors import StartError
from shared.fleet import measured
from shared.fleet.model_names import resolve
from shared.fleet.registry import Registry
from shared.law import native
from shared.law.payoff import LOCAL_MS, Measurement, payoff, sentence
from shared.machine import devices, resources
from shared.machine.bandwidth import read_bandwidth
from shared.machine.devices import Device
from shared.model import hardware, model_files, model_source, weights_read
from shared.model.hardware import Hardware
from shared.model.llama.fitness import Fitness
from shared.model.llama.model import Model
from shared.model.llama.placement import Placement, open_seen
from shared.model.offload import Offload
from shared.model.rows import LlamaError
from shared.model.vocabulary import compare
from shared.model.weights_read import BandwidthUse
from shared.settings.options import DEFAULT_REDIS
from shared.wire.broker import DISCONNECTED, BrokerError, check, connect
from shared.wire.messages import Card, VerifierCard

_ACCEPTANCES: Final = (0.5, 0.7, 0.9)
_PINGS: Final = 20
_REDIS_S: Final = 10.0  # bounds the pings of a server that answers ever more slowly


@dataclass(frozen=True, slots=True)
class Placed:
    """A model file and the devices that it would run on."""

    name: str
    path: Path
    place: Placement
    layers: int  # on its devices
    threads: int


def run(subject: DoctorOptions) -> int:
    """Print every check: 0, or 1 if one failed. Raises `StartError` for options that cannot work."""
    devices.parse_target(subject.models.target_device, subject.models.tensor_split)
    if subject.redis:
        check(subject.redis)
    examination = Examination(subject, Console(highlight=False))
    examination.draws()
    asyncio.run(examination.redis())
    target, drafts = examination.place()
    if target:
        examination.vocabularies(target, drafts)
        examination.costs(target, drafts)
    return 1 if examination.failed else 0


class Examination:
    """Checks in order, each one line; remembers whether one failed."""

    def __init__(self, subject: DoctorOptions, console: Console) -> None:
        self._subject = subject
        self._console = console
        self._fitness = Fitness(self._say, self._bad)
        self._cards: Sequence[Card] = ()
        self.failed = False

    def _say(self, line: str) -> None:
        self._console.print(line, soft_wrap=True)

    def _good(self, line: str) -> None:
        self._console.print(Text.assemble(("✓ ", "green"), line), soft_wrap=True)

    def _bad(self, line: str) -> None:
        self.failed = True
        self._console.print(Text.assemble(("✗ ", "red"), line), soft_wrap=True)

    def draws(self) -> None:
        """Is the native code for draws there? Without it everything works, only slower."""
        if native.FAULT:
            self._say(f"draws: with numpy, three times as slow as in native code; {native.FAULT}")
        else:
            self._good("draws: in native code")

    async def redis(self) -> None:
        """Does the server answer, and how fast? Without `--redis` nothing needs to be there."""
        url = self._subject.redis or DEFAULT_REDIS
        try:
            async with asyncio.timeout(_REDIS_S), connect(url) as broker:
                begin = time.perf_counter()
                for _ in range(_PINGS):
                    await broker.redis.ping()
                round_trip_ms = (time.perf_counter() - begin) / _PINGS * 1000
                self._cards = await Registry(broker.redis).list()
                version = await broker.redis.eval("return redis.REDIS_VERSION or 'unknown version'", 0)
        except (*DISCONNECTED, BrokerError) as error:
            if self._subject.redis:
                self._bad(str(error))
            else:
                self._good("Redis: none is running; `draftmesh up` brings its own")
        else:
            self._good(f"Redis: answers in {round_trip_ms:.2f} ms, version {version.decode()}")
            self._names([card for card in self._cards if isinstance(card, VerifierCard) and not card.draining])

    def _names(self, verifiers: Sequence[VerifierCard]) -> None:
        """Does every name of a served model mean what its verifier wants?"""
        names = resolve(verifiers)
        if names.models:
            self._good(f"served: {names.listing()}")
        for conflict in names.conflicts:
            self._bad(str(conflict))

    def place(self) -> tuple[Placed | None, list[Placed]]:
        """Find devices and model files; what cannot be found is a failed check."""
        models = self._subject.models
        here = hardware.look()
        present = here.devices
        for name, device in devices.named(present).items():
            self._good(f"device {name}: {device.description}, {devices.memory(device)}")
        self.backends(here)
        targets = placing.place_targets([models.target_device], models.tensor_split, 1, present)
        others = placing.place_drafts(models.draft_device, len(models.draft_model), present, targets)
        path = self._find(models.target_model, "--target-model")
        placed = self._offload(path, targets[0], present) if path else None
        cores = resources.available_cores()
        threads = placing.threads(cores, placed is None or placed.computes_here, models.threads)
        split = devices.parse_tensor_split(models.tensor_split)
        place = open_seen(targets[0], present, split, devices.TARGET_OPTION)
        target = Placed(model_source.model_name(path), path, place, placed.layers, threads) if path and placed else None
        drafts = [
            Placed(
                model_source.model_name(draft),
                draft,
                open_seen([other], present),
                -1,
                placing.threads(cores, other.kind == devices.CPU),
            )
            for spec, other in zip(models.draft_model, others, strict=True)
            if (draft := self._find(spec, "--draft-model"))
        ]
        return target, drafts

    def backends(self, here: Hardware) -> None:
        """Can the backends that were added be used, and is there a GPU that none is for?"""
        for backend in command.added():
            release = f"backend {backend.name} {backend.version}".strip()
            if backend.state == "unusable":
                self._bad(f"{release}: {backend.note}")
            else:
                self._good(f"{release}: {', '.join(backend.devices) or backend.note}")
        if told := signs.missing(lambda: here):
            self._console.print(Text(f"! {told}", style="yellow"), soft_wrap=True)

    def _offload(self, path: Path, target: Sequence[Device], present: Sequence[Device]) -> Offload | None:
        """Does the target fit, and which layers of it go where?"""
        models = self._subject.models
        placed = placing.offload_target(path, models.target_model, target, present, gpu_layers=models.gpu_layers)
        if shortage := placed.shortage():
            self._bad(f"model {model_source.model_name(path)}: {shortage}")
            return None
        self._good(f"model {model_source.model_name(path)}: {placed}")
        return placed

    def _find(self, spec: str, option: str) -> Path | None:
        try:
            path = fetching.find(spec, option, self._console)
            tokens = len(_texts(path))
        except (StartError, LlamaError) as error:
            self._bad(str(error))
            return None
        self._good(f"model {model_source.model_name(path)}: readable, with {tokens} tokens in its vocabulary")
        return path

    def vocabularies(self, target: Placed, drafts: Sequence[Placed]) -> None:
        """Do the drafters speak the target's tokens?"""
        texts = _texts(target.path)
        for draft in drafts:
            found = compare(texts, _texts(draft.path))
            if found.can_draft:
                self._good(f"vocabulary of {draft.name}: {found}")
            else:
                self._bad(f"vocabulary of {draft.name}: {found}; it cannot draft for {target.name}")

    def costs(self, target: Placed, drafts: Sequence[Placed]) -> None:
        """Say whether speculation pays: as a verifier here that serves the target measured it, or else measured now.

        Beside a running verifier a measurement of our own would be wrong, and slow that one down.
        """
        running = self._running(target)
        found = measured.of_verifier(running, self._cards) if running else None
        if found is None or not found.row_ms:
            running = None
            found = self._measure(target, stopwatch.COUNTS)
        if not found.row_ms:
            return
        source = "as the running verifier measures it" if running else "measured now"
        table = Table("rows", title=f"cost of rows: {target.name}, {source}", title_justify="left")
        for rows, _ in found.row_ms:
            table.add_column(str(rows))
        step = found.cost()(1)
        table.add_row("ms", *(f"{ms:.1f}" for _, ms in found.row_ms))
        table.add_row("steps", *(f"{ms / step:.2f}" for _, ms in found.row_ms))
        self._console.print(table)
        self._console.print(sentence(found), soft_wrap=True)
        if not running:
            self._console.print(self._bandwidth(target, 1000 / step), soft_wrap=True)
        if not found.can_roll_back:
            return
        rows_alone = Measurement(row_ms=found.row_ms)
        self._by_acceptance("lookup or a drafter that always keeps up", rows_alone)
        for draft in drafts:
            draft_ms = dict(self._measure(draft, (1,)).row_ms).get(1)
            if draft_ms:
                share = f"{draft_ms:.1f} ms a token, {draft_ms / step:.2f} of the target's step"
                one = replace(rows_alone, draft_ms=draft_ms, round_trip_ms=LOCAL_MS)
                self._by_acceptance(f"{draft.name} ({share})", one)

    def _bandwidth(self, target: Placed, tokens_per_second: float) -> str:
        """How near a plain decode on the CPU comes to what memory allows."""
        if target.place.gpus:
            return "share of the memory bandwidth: not measured for a GPU"
        weights = weights_read.per_token(model_files.headers(target.path))
        bandwidth = read_bandwidth(target.threads)
        reading = BandwidthUse(weights=weights, bandwidth=bandwidth, threads=target.threads)
        return reading.sentence(tokens_per_second) or "share of the memory bandwidth: too little memory to measure it"

    def _running(self, target: Placed) -> VerifierCard | None:
        """The verifier that serves the target on the same device of this machine."""
        wanted = (socket.gethostname(), target.name, target.place.name)
        return next(
            (
                card
                for card in self._cards
                if isinstance(card, VerifierCard) and (card.host, card.model, card.device) == wanted
            ),
            None,
        )

    def _measure(self, placed: Placed, counts: Sequence[int]) -> Measurement:
        try:
            with closing(stopwatch.load(placed.path, placed.place, placed.layers, self._fitness)) as model:
                row_ms = stopwatch.measure(model, placed.threads, counts)
                return Measurement(row_ms=tuple(row_ms.items()), can_roll_back=model.can_roll_back)
        except LlamaError as error:
            self._bad(str(error))
            return Measurement(row_ms=())

    def _by_acceptance(self, who: str, measurement: Measurement) -> None:
        parts = []
        for acceptance in _ACCEPTANCES:
            found = payoff(replace(measurement, alpha=acceptance))
            gain = "does not pay" if found.reason else f"{found.expected:.2f}x with {found.width} drafts"
            parts.append(f"{acceptance}: {gain}")
        self._console.print(f"  {who}, by acceptance: {', '.join(parts)}", soft_wrap=True)


def _texts(path: Path) -> list[bytes]:
    with closing(Model(path, vocab_only=True)) as model:
        return model.vocabulary.texts()
