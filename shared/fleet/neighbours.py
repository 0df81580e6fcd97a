"""What the other processes of this machine compute, read from their cards. Pure.

The containers of a machine have host names of their own, so the id of the machine's boot identifies it.
"""

from collections.abc import Iterator, Sequence

from shared.machine import threads
from shared.machine.devices import Device
from shared.wire.messages import Announced, Arrival, DrafterCard, Site, VerifierCard

Neighbour = VerifierCard | DrafterCard | Arrival


def is_verifier(card: Announced) -> bool:
    """Whether it is a verifier, or will be."""
    return isinstance(card, VerifierCard) or (isinstance(card, Arrival) and card.role == "verifier")


def beside(own: Arrival, cards: Sequence[Announced]) -> Iterator[Neighbour]:
    """The other verifiers and drafters on the machine of `own`."""
    for card in cards:
        if isinstance(card, Neighbour) and card.id != own.id and card.site.machine == own.site.machine:
            yield card


def targets(own: Arrival, cards: Sequence[Announced]) -> list[Device]:
    """The GPUs on the machine of `own` that other processes' targets use."""
    return [device for card in beside(own, cards) if is_verifier(card) for device in card.site.devices]


def share(own: Arrival, cards: Sequence[Announced], cores: int, quota: int) -> int:
    """Threads for `own`, which chooses now: part of the `cores` on which it may run, and of its `quota`.

    All processes that may run on some of the cores share them, and all that the quota limits share it.
    """
    others = [card for card in beside(own, cards) if _mask(card.site.cores) & _mask(own.site.cores)]
    under_quota = [card for card in others if card.site.quota == own.site.quota]
    return min(_share(own, others, cores), _share(own, under_quota, quota))


def most(own: Arrival, cards: Sequence[Announced], cores: int, quota: int) -> int:
    """Threads for `own` while nobody drafts, or nobody decodes: a drafter takes all, and targets share alike."""
    if not is_verifier(own):
        return min(cores, quota)
    return share(own, [card for card in cards if is_verifier(card)], cores, quota)


def contend(one: Site, other: Site) -> bool:
    """Whether two processes compute on the same cores or the same device, so that either slows the other."""
    if not one.machine or one.machine != other.machine:
        return False
    if {_identity(device) for device in one.devices} & {_identity(device) for device in other.devices}:
        return True
    if not _mask(one.cores) & _mask(other.cores):
        return False
    cores = (_mask(one.cores) | _mask(other.cores)).bit_count()
    return bool(one.quota and one.quota == other.quota) or _most(one) + _most(other) > cores


def _most(site: Site) -> int:
    return max(site.most, site.threads)


def fit(one: Site, other: Site) -> bool:
    """Whether two processes that contend can compute at the same time, each with a part of the cores."""
    cores = (_mask(one.cores) | _mask(other.cores)).bit_count()
    return bool(_mask(one.cores) and _mask(other.cores)) and one.threads + other.threads <= cores


def _identity(device: Device) -> str:
    return device.id or device.name


def _mask(digits: str) -> int:
    return int(digits or "0", 16)


def _share(own: Arrival, others: Sequence[Neighbour], cores: int) -> int:
    together = sorted([own, *others], key=lambda card: card.id)
    target = is_verifier(own)
    choosing = [card for card in together if card.site.threads == 0 and is_verifier(card) == target]
    return threads.share(
        cores,
        target,
        choosing.index(own),
        [card.site.threads for card in together if is_verifier(card)],
        [card.site.threads for card in together if not is_verifier(card)],
    )
