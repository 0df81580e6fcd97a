"""`draftmesh setup`: looks at this machine and its models, measures what could work, and writes a `draftmesh.toml`."""

import asyncio
import os
import socket
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.text import Text

from services.launcher.backends import signs
from services.launcher.facts.fleet_reader import read_cards
from services.launcher.forecast import plan_report, planning, setup_file
from services.launcher.forecast.fleet_measurements import from_cards
from services.launcher.forecast.model_candidates import Candidates, LocalModels
from services.launcher.forecast.split import ModelCandidate, Spare, Split, TargetPlace, propose, title
from services.launcher.settings.setup_options import SetupOptions
from services.launcher.settings.up_options import ModelOptions
from shared.errors import StartError
from shared.law.payoff import WORTH, Measurement, sentence
from shared.machine import devices
from shared.machine.devices import Device
from shared.model import hardware
from shared.wire.messages import Card, DrafterCard

_MEASURED: Final = 4  # drafters that are tried; each one is loaded and measured
_TOKENS: Final = 32  # of each answer of the probe: a minute even where the target is slow
_WORTH_SHARED: Final = 1.3  # on one device both slow each other, but they are measured one after the other


Entry = dict[str, Any]  # of one drafter, as `outlook.describe` has it


@dataclass(frozen=True, slots=True)
class ProposedSetup:
    """A split and what it brings: a speed-up, and lines for people. `speedup` None: it was not measured."""

    split: Split
    speedup: float | None
    lines: Sequence[str]


def run(options: SetupOptions, ask: bool) -> int:
    """Find, measure, explain, write: 0, or 1 if it was to `ask` and the answer was no.

    Raises `StartError` for options that cannot work.
    """
    if options.output.exists() and not options.force and not options.show:
        raise StartError("--output", options.output, "is there already; --force replaces it, --print writes nothing")
    console = Console(stderr=True, highlight=False)
    cards = asyncio.run(read_cards(options.redis)) if options.redis else []
    here = hardware.look()
    present = here.devices
    seen = _seen(present)
    _say(console, "This machine has", seen)
    if told := signs.missing(lambda: here):
        console.print(Text(told, style="yellow"), soft_wrap=True)
    local = LocalModels(devices.named(present), options.parallel, options.folder, console)
    target = options.target_model or local.best()
    if ask and not options.target_model:
        target = str(typer.prompt("Target model", default=target, err=True))
    target = _absolute(target)
    found = local.candidates(target, [_absolute(model) for model in options.draft_model])
    elsewhere = spares(cards, found.fingerprint, found.n_tokens, socket.gethostname())
    splits = propose(present, found.target, found.smaller, found.drafts, elsewhere)
    if not splits:
        raise StartError("--target-model", target, _too_large(found.target, found, seen))
    observed = _observed(cards, found.served, {spare.model for spare in elsewhere})
    choice = _choose(options, splits, found.target.recurrent, observed, console)
    _say(console, "Proposed", [_summary(choice.split), *choice.split.reasons])
    _say(console, "To be expected", choice.lines)
    text = setup_file.render(choice.split, choice.lines, options.redis, seen)
    if options.show:
        sys.stdout.write(text)
        return 0
    if ask and not typer.confirm(f"Write {options.output}?", default=True, err=True):
        return 1
    _write(options.output, text, options.force)
    console.print(Text(f"wrote {options.output}; `draftmesh up` starts it"), soft_wrap=True)
    return 0


def spares(cards: Sequence[Card], fingerprint: str, n_tokens: int, host: str) -> list[Spare]:
    """Drafters with a model on machines other than `host`, except those with another vocabulary of the same size.

    Vocabularies of different sizes may agree in their common part; the verifier compares them.
    """
    return [
        Spare(card.host, card.model, card.device)
        for card in cards
        if isinstance(card, DrafterCard) and card.kind == "model" and card.host != host
        if card.n_vocab != n_tokens or card.fingerprint == fingerprint
    ]


def _choose(
    options: SetupOptions, splits: Sequence[Split], plainly: bool, observed: Sequence[Entry], console: Console
) -> ProposedSetup:
    """The fastest split for the target's best place; the first one if nothing is measured."""
    place = splits[0].place
    here = [split for split in splits if split.place == place]
    if not options.probe:
        return ProposedSetup(here[0], None, ["nothing was measured; `draftmesh plan` does it with these options"])
    tried = [] if plainly else [split for split in here if split.drafts][:_MEASURED]
    plain = next(split for split in here if not split.drafts)
    found = plan_report.describe(planning.measure(_subject(place, tried), console))
    if plainly:
        return ProposedSetup(
            plain, 1.0, [f"{_speed(found):.1f} tokens a second", "a recurrent model, which answers plainly"]
        )
    return choose(plain, tried, found, observed)


def choose(
    plain: Split, tried: Sequence[Split], found: Mapping[str, Any], observed: Sequence[Entry] = ()
) -> ProposedSetup:
    """The best of `tried`, by `found` (as `outlook.describe` gives it, drafters in the same order), or `plain`.

    `observed` are a running fleet's entries about drafters elsewhere.
    """
    lines = [f"{_speed(found):.1f} tokens a second without drafts"]
    if not tried and not observed:
        return ProposedSetup(
            plain, 1.0, [*lines, sentence(Measurement(row_ms=tuple(found["target"]["row_ms"].items())))]
        )
    best, gain = plain, 1.0
    for split, entries in zip(tried, _by_drafter(found["drafts"], len(tried)), strict=True):
        average = sum(entry["best"]["ahead"]["speedup"] for entry in entries) / len(entries)
        model, device = split.drafts[0]
        lines += [
            f"{title(model)} on {device}, temperature {entry['temperature']:g}: {entry['verdict']}" for entry in entries
        ]
        if average > gain and average >= (_WORTH_SHARED if split.shared else WORTH):
            best, gain = split, average
    lines += [f"{entry['model']} elsewhere: {entry['verdict']}" for entry in observed]
    gain = max([gain, *(entry["best"]["ahead"]["speedup"] for entry in observed)])
    if gain == 1.0:
        lines.append("so no draft model is proposed: it would not pay")
    else:
        lines.append(f"so about {_speed(found) * gain:.1f} tokens a second")
    if best.shared:
        lines.append("each was measured alone; on one device they slow each other, so expect less")
    return ProposedSetup(best, gain, lines)


def _speed(found: Mapping[str, Any]) -> float:
    """Tokens a second without drafts."""
    return float(1000 / found["target"]["row_ms"][1])


def _by_drafter(entries: Sequence[Entry], count: int) -> list[Sequence[Entry]]:
    """The entries of each drafter: there is one per temperature, drafter by drafter."""
    each = len(entries) // max(1, count)
    return [entries[index * each : (index + 1) * each] for index in range(count)]


def _observed(cards: list[Card], target: str, elsewhere: Collection[str]) -> list[Entry]:
    """The fleet's measurements of models that draft on other machines for this target."""
    if not elsewhere:
        return []
    try:
        found = plan_report.describe(from_cards(cards, None))
    except StartError:  # they have drafted nothing yet
        return []
    if found["target"]["model"] != target:
        return []
    return [entry for entry in found["drafts"] if entry["model"] in elsewhere]


def _subject(place: TargetPlace, tried: Sequence[Split]) -> planning.PlanOptions:
    return planning.PlanOptions(
        models=ModelOptions(
            target_model=place.target,
            draft_model=[split.drafts[0][0] for split in tried],
            target_device=place.device,
            draft_device=[split.drafts[0][1] for split in tried],
            gpu_layers=place.gpu_layers,
            tensor_split=place.tensor_split,
        ),
        temperatures=(0.0, 1.0),
        texts=planning.TEXTS,
        tokens=_TOKENS,
        round_trip_ms=None,
        demo_pair=False,
    )


def _seen(present: Sequence[Device]) -> list[str]:
    return [
        f"{name}: {device.description}, {devices.memory(device)}" for name, device in devices.named(present).items()
    ]


def _summary(split: Split) -> str:
    drafts = [f"{title(model)} on {device}" for model, device in split.drafts]
    return f"target {title(split.place.target)} on {split.place.device}; drafters: {', '.join(drafts) or 'lookup only'}"


def _too_large(target: ModelCandidate, found: Candidates, seen: Sequence[str]) -> str:
    need = f"its weights take {decimal(target.weights)}, and this machine has {'; '.join(seen)}"
    here = ", ".join(model.name for model in found.smaller)
    return f"fits nowhere: {need}; take a smaller quantisation{f', such as {here}' if here else ''}"


def _absolute(spec: str) -> str:
    """A path made absolute; other names stay."""
    path = Path(spec.partition("#")[0]).expanduser()
    return f"{path.absolute()}{spec[spec.index('#') :] if '#' in spec else ''}" if path.is_file() else spec


def _say(console: Console, title: str, lines: Sequence[str]) -> None:
    console.print(Text(f"{title}:", style="bold"))
    for line in lines:
        console.print(Text(f"  {line}"), soft_wrap=True)


def _write(path: Path, text: str, force: bool) -> None:
    """Readable only by the owner, because the file may later hold a password."""
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if force else os.O_EXCL)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise StartError("--output", path, f"cannot be written ({error.strerror})") from None
