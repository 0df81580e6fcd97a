"""How a target and its drafters could be divided over the devices of a machine, and over machines that joined. Pure.

A drafter belongs on another device than the target, whose decodes it would slow; the target belongs where all of it
fits. Only a measurement tells how fast a split is, so this order is the order of measuring.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shared.machine import devices
from shared.machine.devices import Device
from shared.model.memory import Fit
from shared.model.offload import AUTO

_SYSTEM_MEMORY: Final = ("cpu", "igpu")  # they share this memory and its bandwidth
_PER_DEVICE: Final = 2  # draft models that are considered on each


def title(model: str) -> str:
    """A model's name for people: of a path only the file's name."""
    return model.rpartition("/")[2] if model.startswith("/") else model


@dataclass(frozen=True, slots=True)
class ModelCandidate:
    """A model by the name that commands take, the bytes of its weights, and `fit(free, on_cpu)`.

    A recurrent one decodes without drafts: its state cannot take drafts back.
    """

    name: str
    weights: int
    fit: Callable[[int, bool], Fit]
    recurrent: bool = False


@dataclass(frozen=True, slots=True)
class Spare:
    """A drafter of another machine that has joined already."""

    host: str
    model: str  # or "lookup"
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPlace:
    """Where the target goes, and why. `device` and the rest are values of `up`'s options."""

    target: str
    device: str
    reason: str
    gpu_layers: str = AUTO
    tensor_split: str = ""
    taken: tuple[str, ...] = ()  # devices that compute the target, all of them or in part


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One proposal: the target's place, drafters here with their devices, and the reasons for both."""

    place: TargetPlace
    drafts: tuple[tuple[str, str], ...] = ()  # model, device
    shared: bool = False  # a drafter computes where the target does
    reason: str

    @property
    def reasons(self) -> tuple[str, str]:
        return (self.place.reason, self.reason)


def propose(
    present: Sequence[Device],
    target: ModelCandidate,
    smaller: Sequence[ModelCandidate] = (),
    drafts: Sequence[ModelCandidate] = (),
    spares: Sequence[Spare] = (),
) -> list[Split]:
    """All splits, the most promising first. Empty if the target fits nowhere.

    `smaller` are quantisations of the target that need less; they come last, and only if no GPU holds the whole target.
    """
    named = devices.named(present)
    places = list(_places(named, target))
    if not any(place.gpu_layers == AUTO and place.device != devices.CPU for place in places):
        for model in smaller:
            places += [place for place in _whole(named, model) if named[place.device].kind != devices.CPU]
    return [split for place in places for split in _splits(named, place, target.weights, drafts, spares)]


def _places(named: Mapping[str, Device], target: ModelCandidate) -> Iterator[TargetPlace]:
    """Whole on one GPU, whole over several, in part on one, on the CPU."""
    whole = list(_whole(named, target))
    on_gpu = [place for place in whole if place.device != devices.CPU]
    yield from on_gpu
    if not on_gpu:
        yield from _over_several(named, target)
        yield from _in_part(named, target)
    yield from (place for place in whole if place.device == devices.CPU)


def _whole(named: Mapping[str, Device], target: ModelCandidate) -> Iterator[TargetPlace]:
    for name, device in _in_order(named):
        fit = target.fit(device.memory_free, name == devices.CPU)
        if fit.whole:
            reason = f"{title(target.name)} fits {_called(device, name)} whole, with {fit.context} tokens a request"
            yield TargetPlace(target=target.name, device=name, reason=reason, taken=(name,))


def _over_several(named: Mapping[str, Device], target: ModelCandidate) -> Iterator[TargetPlace]:
    """An integrated GPU does not help: it would be the slowest, and uses the system's memory."""
    cards = devices.for_a_split(list(named.values()))
    gpus = {_name(device, named): device for device in cards if device.kind == "gpu"}
    if len(gpus) < 2:
        return
    fit = target.fit(sum(device.memory_free for device in gpus.values()), False)
    if fit.whole:
        yield TargetPlace(
            target=target.name,
            device=",".join(gpus),
            tensor_split=",".join(f"{device.memory_free / 1e9:.1f}" for device in gpus.values()),
            reason=f"{title(target.name)} fits no GPU alone, but {' and '.join(gpus)} together",
            taken=tuple(gpus),
        )


def _in_part(named: Mapping[str, Device], target: ModelCandidate) -> Iterator[TargetPlace]:
    for device in devices.by_preference(list(named.values())):
        name, fit = _name(device, named), target.fit(device.memory_free, False)
        if 0 < fit.layers < fit.of:
            yield TargetPlace(
                target=target.name,
                device=name,
                gpu_layers=str(fit.layers),
                reason=f"{title(target.name)} fits {_called(device, name)} with {fit.layers} of {fit.of} layers, so"
                " the CPU computes the rest; a smaller quantisation would be faster",
                taken=(name, devices.CPU),
            )
            return


def _splits(
    named: Mapping[str, Device],
    place: TargetPlace,
    weights: int,
    drafts: Sequence[ModelCandidate],
    spares: Sequence[Spare],
) -> Iterator[Split]:
    apart, beside = [], []
    for name, device in _in_order(named):
        left = device.memory_free - _needed(named, place, device, weights)
        fitting = [draft for draft in drafts if draft.fit(left, name == devices.CPU).whole][:_PER_DEVICE]
        for draft in fitting:
            if name in place.taken:
                reason = f"{title(draft.name)} shares {_called(device, name)} with the target, which slows both"
                beside.append(Split(place=place, drafts=((draft.name, name),), shared=True, reason=reason))
            else:
                reason = f"{title(draft.name)} drafts on {_called(device, name)}, which is free"
                if _common(named, place, device):
                    reason += ", though its memory is the target's too"
                apart.append(Split(place=place, drafts=((draft.name, name),), reason=reason))
    if spares:
        names = ", ".join(f"{spare.model} on {spare.host} ({spare.device})" for spare in spares)
        apart.append(Split(place=place, reason=f"machines that joined draft: {names}"))
    yield from sorted(apart, key=lambda split: _rank(named, split))
    if not spares:
        yield Split(place=place, reason="no draft model: copies of earlier text alone are guessed")
    yield from beside


def _rank(named: Mapping[str, Device], split: Split) -> int:
    """GPUs of this machine first, then other machines, then this CPU."""
    if not split.drafts:
        return 2
    return {"gpu": 0, "igpu": 1}.get(named[split.drafts[0][1]].kind, 3)


def _in_order(named: Mapping[str, Device]) -> list[tuple[str, Device]]:
    """Every device, GPUs first."""
    gpus = devices.by_preference(list(named.values()))
    return [(_name(device, named), device) for device in gpus] + [
        (name, device) for name, device in named.items() if name == devices.CPU
    ]


def _needed(named: Mapping[str, Device], place: TargetPlace, device: Device, weights: int) -> int:
    """The target's share of the device's memory."""
    name = _name(device, named)
    return weights if name in place.taken or _common(named, place, device) else 0


def _common(named: Mapping[str, Device], place: TargetPlace, device: Device) -> bool:
    """Whether the target lies in the same system memory, on another device."""
    kinds = {named[name].kind for name in place.taken}
    return (
        device.kind in _SYSTEM_MEMORY and _name(device, named) not in place.taken and bool(kinds & set(_SYSTEM_MEMORY))
    )


def _name(device: Device, named: Mapping[str, Device]) -> str:
    return next(name for name, other in named.items() if other is device)


def _called(device: Device, name: str) -> str:
    return "the CPU" if name == devices.CPU else f"{name} ({device.description})"
