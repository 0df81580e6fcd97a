"""What a process that starts concludes from the others on its machine, in containers with names of their own too."""

from typing import Any, Literal

from msgspec.structs import replace

from shared.fleet import neighbours
from shared.machine.devices import Device
from shared.wire import codec
from shared.wire.messages import Announced, Arrival, DrafterCard, GatewayCard, Site, VerifierCard
from tests.fleet_cards import VERIFIER
from tests.toys import drafter_card

CARD = Device("CUDA0", "NVIDIA L4", "gpu", 22 * 10**9, 24 * 10**9, "0000:01:00.0")
HERE = Site(machine="boot-1", cores="ff")


def arrival(name: str, role: Literal["verifier", "drafter"] = "drafter", site: Site = HERE) -> Arrival:
    return Arrival(id=f"{role}-{name}", host=name, pid=7, role=role, site=site)


def verifier(name: str, **site: Any) -> VerifierCard:
    return replace(VERIFIER, id=f"verifier-{name}", host=name, site=replace(HERE, **site))


def drafter(name: str, **site: Any) -> DrafterCard:
    return replace(drafter_card(f"drafter-{name}"), host=name, site=replace(HERE, **site))


def share(own: Arrival, *cards: Announced, cores: int = 8, quota: int = 2**63) -> int:
    return neighbours.share(own, [own, *cards], cores, quota)


def test_targets_of_this_machine_are_seen_under_any_host_name() -> None:
    own = arrival("container-b")
    assert neighbours.targets(own, [verifier("container-a", devices=(CARD,))]) == [CARD]
    early = arrival("container-a", "verifier", replace(HERE, devices=(CARD,)))
    assert neighbours.targets(own, [early]) == [CARD], "it has chosen, and loads"


def test_another_machines_targets_are_its_own_affair_under_the_same_host_name_too() -> None:
    own = arrival("box")
    assert neighbours.targets(own, [verifier("box", machine="boot-2", devices=(CARD,))]) == []
    assert neighbours.targets(own, [VERIFIER]) == [], "one of an earlier release, which tells no place"


def test_a_drafters_card_is_not_a_targets() -> None:
    assert neighbours.targets(arrival("b"), [drafter("a", devices=(CARD,)), arrival("c", site=HERE)]) == []


def test_a_verifier_and_a_drafter_that_start_together_share_the_cores() -> None:
    target, draft = arrival("a", "verifier"), arrival("b")
    assert share(target, draft) == 6
    assert share(draft, target) == 2
    assert share(draft, verifier("a", threads=6)) == 2
    assert share(target, drafter("b", threads=2)) == 6


def test_who_computes_on_a_gpu_or_by_lookup_takes_no_core() -> None:
    assert share(arrival("a", "verifier"), drafter("b", cores="", threads=1), drafter_card("drafter-lookup")) == 8
    assert share(arrival("b"), verifier("a", cores="", devices=(CARD,), threads=1)) == 8


def test_another_machine_takes_no_core() -> None:
    assert share(arrival("b"), verifier("a", machine="boot-2")) == 8


def test_processes_on_cores_of_their_own_do_not_share() -> None:
    assert share(arrival("b", site=replace(HERE, cores="c0")), verifier("a", cores="3f"), cores=2) == 2
    assert share(arrival("b", site=replace(HERE, cores="f0")), verifier("a", cores="3f"), cores=4) == 1


def test_a_quota_is_divided_among_those_whom_it_limits_together() -> None:
    own = arrival("b", site=replace(HERE, quota="group-1"))
    assert share(own, verifier("a", quota="group-1"), cores=64, quota=4) == 1
    assert share(own, verifier("a", quota="group-2"), cores=64, quota=4) == 4, "each has time of its own"
    assert share(own, verifier("a", quota="group-2"), cores=8, quota=4) == 2, "and the cores in common"


def test_several_of_a_kind_share_alike_and_agree_who_gets_what_is_left_over() -> None:
    one, two = arrival("a", "verifier"), arrival("b", "verifier")
    assert (share(one, two, cores=9), share(two, one, cores=9)) == (5, 4)


def test_an_arrival_travels_as_it_is() -> None:
    told = arrival("a", "verifier", replace(HERE, devices=(CARD,), threads=3, quota="2"))
    assert codec.decode_card(codec.encode(told)) == told


def test_only_verifiers_and_those_to_be_are_verifiers() -> None:
    gateway = GatewayCard(id="gateway-1", host="h", pid=1, url="http://h", streams=0)
    cards: list[Announced] = [VERIFIER, arrival("a", "verifier"), arrival("a"), drafter("a"), gateway]
    assert [neighbours.is_verifier(card) for card in cards] == [True, True, False, False, False]


def test_processes_contend_that_cannot_both_have_all_their_threads() -> None:
    one, two = replace(HERE, threads=6, most=8), replace(HERE, threads=2, most=8)
    assert neighbours.contend(one, two)
    assert neighbours.fit(one, two), "each with its part they find room"
    assert not neighbours.fit(one, replace(two, threads=3))
    few = replace(HERE, threads=2, most=2)
    assert not neighbours.contend(few, few), "there are cores for both"
    assert not neighbours.contend(one, replace(two, machine="boot-2"))
    assert not neighbours.contend(replace(one, cores="f"), replace(two, cores="f0"))
    assert not neighbours.contend(Site(threads=8), Site(threads=8)), "of an earlier release, which tells no place"


def test_processes_under_one_quota_contend_on_any_cores_that_they_share() -> None:
    one = replace(HERE, quota="group-1", threads=1, most=2)
    assert neighbours.contend(one, one)
    assert not neighbours.contend(one, replace(one, quota="group-2"))


def test_two_models_on_one_card_contend_and_do_not_fit_at_the_same_time() -> None:
    one = Site(machine="boot-1", devices=(CARD,), threads=1, most=1)
    assert neighbours.contend(one, one)
    assert not neighbours.fit(one, one)
    other = replace(one, devices=(Device("CUDA1", "NVIDIA L4", "gpu", 1, 1, "0000:02:00.0"),))
    assert not neighbours.contend(one, other)


def test_while_nobody_drafts_a_target_has_all_cores_but_those_of_other_targets() -> None:
    own, draft = arrival("a", "verifier"), arrival("b")
    assert neighbours.most(own, [own, draft, drafter("c", threads=2)], 8, 2**63) == 8
    assert neighbours.most(own, [own, arrival("c", "verifier")], 8, 2**63) == 4
    assert neighbours.most(draft, [own, draft], 8, 2**63) == 8
    assert neighbours.most(draft, [own, draft], 8, 4) == 4
