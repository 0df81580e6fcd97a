"""`draftmesh plan`: what speculation would bring with these models on these devices, before anything is started.

The target answers a few texts plainly and is let go before the draft models are loaded, one after the other, so that
memory holds one model at a time.
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rich.console import Console

from services.launcher.facts import placing
from services.launcher.facts.fleet_reader import read_cards
from services.launcher.forecast import plan_report, probe, stopwatch
from services.launcher.forecast.fleet_measurements import from_cards
from services.launcher.forecast.forecast import Agreement
from services.launcher.forecast.plan_report import Outlook, Prospect
from services.launcher.models import fetching
from services.launcher.models.pair import build_pair
from services.launcher.models.progress import Stage, building, stages
from services.launcher.settings.up_options import DoctorOptions
from shared.errors import StartError
from shared.folders import cache_folder
from shared.law.payoff import LOCAL_MS, Measurement
from shared.law.sampling import BrokenLogits
from shared.machine import devices, resources
from shared.model import hardware, model_source
from shared.model.llama.context import Context
from shared.model.llama.fitness import Fitness, on_stderr
from shared.model.llama.model import Model
from shared.model.llama.placement import Placement, open_seen
from shared.model.rows import LlamaError
from shared.model.vocabulary import compare
from shared.wire.broker import check
from shared.wire.messages import Sampling

SEED: Final = 7
_ROWS: Final = 64  # of a decode while a text is read; their logits lie in memory at once
TEXTS: Final = (
    "The lighthouse keeper had not spoken to anyone for eleven days when the boat finally came round the headland,",
    'def parse_duration(text: str) -> float:\n    """Seconds in a text such as 1h30m, 45s or 2m."""\n',
    "Question: Why does bread rise, and what happens if the dough stands too long?\nAnswer:",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions(DoctorOptions):
    """The options of `plan`, as given."""

    temperatures: Sequence[float]
    texts: Sequence[str]
    tokens: int
    round_trip_ms: float | None  # to the drafter; None: as a fleet measured it, or as on one machine
    demo_pair: bool


def run(subject: PlanOptions, as_json: bool) -> int:
    """Measure and print; 0. Raises `StartError` for options that cannot work, `BrokerError` without Redis."""
    console = Console(highlight=False)
    progress = Console(highlight=False, stderr=True)
    _check(subject)
    if subject.redis:
        check(subject.redis)
        found = from_cards(asyncio.run(read_cards(subject.redis)), subject.round_trip_ms)
    else:
        found = measure(_with_pair(subject, progress), progress)
    plain = plan_report.describe(found)
    if as_json:
        console.file.write(json.dumps(plain, indent=2) + "\n")
    else:
        plan_report.show(console, plain)
    return 0


def measure(subject: PlanOptions, progress: Console) -> Outlook:
    """Load the subject's models, one after the other, and measure them; without drafters the cost of rows alone."""
    return _Probe(subject, progress).run()


def _check(subject: PlanOptions) -> None:
    sources = {
        "--draft-model": bool(subject.models.draft_model),
        "--demo-pair": subject.demo_pair,
        "--redis": bool(subject.redis),
    }
    given = [option for option, used in sources.items() if used]
    if not given:
        raise StartError("--draft-model", "is missing", "name a model that guesses ahead, or try --demo-pair")
    if len(given) > 1:
        raise StartError(
            given[0], f"and {given[1]}", "take one: models to measure, the demo's pair, or a running fleet"
        )
    models, devices_given = subject.models.draft_model, subject.models.draft_device
    if len(devices_given) > max(1, len(models)):
        surplus = devices_given[max(1, len(models))]
        raise StartError("--draft-device", surplus, f"one per --draft-model, and there are {len(models)}")
    if not all(text.strip() for text in subject.texts):
        raise StartError("--prompt", '""', "a text to continue")


def _with_pair(subject: PlanOptions, console: Console) -> PlanOptions:
    """The subject with the demo's models in place of names, built if they are not there yet."""
    if not subject.demo_pair:
        return subject
    with building(console) as progress:
        pair = build_pair(cache_folder(), progress)
    drafts = [str(pair.draft_8bit), str(pair.draft_4bit)]
    return replace(subject, models=replace(subject.models, target_model=str(pair.target), draft_model=drafts))


@dataclass(frozen=True, slots=True)
class _Said:
    """One answer of the target: the law it was drawn from, its prompt and its tokens."""

    law: Sampling
    prompt: list[int]
    tokens: list[int]


@dataclass(frozen=True, slots=True)
class _Target:
    """What is kept of the target once it is let go."""

    name: str
    row_ms: dict[int, float]
    texts: list[bytes]  # of its vocabulary
    said: list[_Said]


class _Probe:
    """Measurements with models that are loaded here."""

    def __init__(self, subject: PlanOptions, console: Console) -> None:
        self._subject = subject
        self._console = console
        models = subject.models
        split = devices.parse_tensor_split(models.tensor_split)
        self._present = hardware.look().devices
        [self._devices] = placing.place_targets([models.target_device], models.tensor_split, 1, self._present)
        self._draft_devices = placing.place_drafts(
            models.draft_device, len(models.draft_model), self._present, [self._devices]
        )
        self._place = open_seen(self._devices, self._present, split, devices.TARGET_OPTION)
        self._others = [open_seen([other], self._present) for other in self._draft_devices]

    def run(self) -> Outlook:
        models = self._subject.models
        path = fetching.find(models.target_model, "--target-model", self._console)
        paths = [fetching.find(spec, "--draft-model", self._console) for spec in models.draft_model]
        placed = placing.offload_target(
            path, models.target_model, self._devices, self._present, gpu_layers=models.gpu_layers
        )
        if shortage := placed.shortage():
            raise StartError("--target-model", models.target_model, shortage)
        cores = resources.available_cores()
        own = placing.threads(cores, placed.computes_here, models.threads)
        prospects: list[Prospect] = []
        with stages(self._console) as stage:
            target = self._listen(path, placed.layers, own, stage)
            for draft, place, device in zip(paths, self._others, self._draft_devices, strict=True):
                turns = placing.takes_turns(self._devices, placed.computes_here, device)
                threads = placing.threads(cores, device.kind == devices.CPU)
                prospects += self._compare(draft, place, threads, turns, target, stage)
        return Outlook(
            target=target.name,
            device=self._place.name,
            row_ms=target.row_ms,
            source="probe",
            prospects=prospects,
        )

    def _listen(self, path: Path, layers: int, threads: int, stage: Stage) -> _Target:
        """Time the target's rows and let it answer every text at every temperature."""
        subject, name = self._subject, model_source.model_name(path)
        with _loaded(path, "--target-model", self._place, stage, layers) as model:
            if subject.models.draft_model and not model.can_roll_back:
                raise StartError(
                    "--target-model",
                    path.name,
                    "a recurrent or hybrid model decodes plainly: drafts cannot be taken back",
                )
            rows = stage(f"{name}: cost of rows", 1)
            row_ms = stopwatch.measure(model, threads)
            rows()
            if not subject.models.draft_model:
                return _Target(name, row_ms, model.vocabulary.texts(), [])
            prompts = [model.vocabulary.tokenize(text, add_special=True) for text in subject.texts]
            laws = [Sampling(seed=SEED, temperature=temperature) for temperature in subject.temperatures]
            told = stage(f"{name}: answers", len(prompts) * len(laws) * subject.tokens)
            with closing(self._context(model, threads, max(map(len, prompts)))) as context:
                said = [
                    _Said(law, prompt, probe.answer(context, prompt, law, subject.tokens, model.vocabulary.eog, told))
                    for prompt in prompts
                    for law in laws
                ]
            return _Target(name, row_ms, model.vocabulary.texts(), said)

    def _compare(
        self, path: Path, place: Placement, threads: int, turns: bool, target: _Target, stage: Stage
    ) -> Iterator[Prospect]:
        """Time one draft model and let it read along, text by text."""
        name = model_source.model_name(path)
        with _loaded(path, "--draft-model", place, stage) as model:
            vocabulary = compare(target.texts, model.vocabulary.texts())
            if not vocabulary.can_draft:
                raise StartError("--draft-model", path.name, f"it cannot draft for the target: {vocabulary}")
            step_ms = stopwatch.measure(model, threads, (1,))[1]
            told = stage(f"{name}: reads along", len(target.said))
            found = {temperature: Agreement(0, 0, 0, 0) for temperature in self._subject.temperatures}
            with closing(self._context(model, threads, max(len(said.prompt) for said in target.said))) as context:
                for said in target.said:
                    found[said.law.temperature] += probe.agreement(
                        context, said.prompt, said.tokens, said.law, len(target.texts)
                    )
                    told()
        rtt = self._subject.round_trip_ms
        for temperature, agreement in found.items():
            yield Prospect(
                draft=name,
                device=place.name,
                temperature=temperature,
                agreement=agreement,
                measurement=Measurement(
                    row_ms=tuple(target.row_ms.items()),
                    alpha=agreement.alpha,
                    draft_ms=step_ms,
                    round_trip_ms=LOCAL_MS if rtt is None else rtt,
                    turns=turns,
                ),
            )

    def _context(self, model: Model, threads: int, prompt: int) -> Context:
        return Context(
            model,
            n_ctx=prompt + self._subject.tokens + 1,
            sequences=1,
            unified=True,
            threads=threads,
            max_rows=_ROWS,
            max_outputs=_ROWS,
        )


@contextmanager
def _loaded(
    path: Path,
    option: str,
    place: Placement,
    stage: Stage,
    gpu_layers: int = -1,
) -> Iterator[Model]:
    """A model for as long as the block; whatever it cannot do within it is an error of `option`."""
    told = stage(f"{model_source.model_name(path)}: loading", 100)
    done = 0

    def report(fraction: float) -> None:
        nonlocal done
        while done < int(fraction * 100):
            done += 1
            told()

    try:
        with closing(stopwatch.load(path, place, gpu_layers, Fitness(on_stderr, on_stderr), report)) as model:
            yield model
    except (LlamaError, BrokenLogits) as error:
        raise StartError(option, path.name, str(error)) from None
