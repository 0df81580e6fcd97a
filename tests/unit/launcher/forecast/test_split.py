"""Where target and drafters go, for fleets that nobody here has: what is proposed first, and why."""

from collections.abc import Sequence

import pytest

from services.launcher.forecast.split import ModelCandidate, Spare, Split, propose
from shared.machine.devices import Device
from shared.model.memory import Fit

GB = 10**9
LAYERS = 40


def cpu(free: int = 64) -> Device:
    return Device("CPU", "a CPU", "cpu", free * GB, free * GB)


def gpu(index: int, free: int, backend: str = "CUDA") -> Device:
    return Device(f"{backend}{index}", f"a card of {free} GB", "gpu", free * GB, free * GB)


def igpu(free: int = 32) -> Device:
    return Device("Vulkan0", "graphics in the CPU", "igpu", free * GB, free * GB)


def model(name: str, size: int) -> ModelCandidate:
    """One that needs a GB besides its weights, and can be divided into layers on a GPU."""

    def fit(free: int, on_cpu: bool) -> Fit:
        if free >= (size + 1) * GB:
            return Fit(LAYERS, LAYERS, 4096)
        return Fit(0 if on_cpu else max(0, int(LAYERS * (free - GB) / (size * GB))), LAYERS, 4096)

    return ModelCandidate(name, size * GB, fit)


BIG, SMALL = model("big", 16), model("small", 1)


def first(splits: Sequence[Split]) -> tuple[str, str, str, tuple[tuple[str, str], ...]]:
    place = splits[0].place
    return place.device, place.gpu_layers, place.tensor_split, splits[0].drafts


def test_an_integrated_gpu_drafts_for_the_card() -> None:
    splits = propose([gpu(0, 24), igpu(), cpu()], BIG, drafts=[SMALL])
    assert first(splits) == ("cuda:0", "auto", "", (("small", "vulkan:0"),))
    assert splits[0].reasons == (
        "big fits cuda:0 (a card of 24 GB) whole, with 4096 tokens a request",
        "small drafts on vulkan:0 (graphics in the CPU), which is free",
    )


def test_of_two_unlike_gpus_the_smaller_one_drafts() -> None:
    assert first(propose([gpu(0, 8), gpu(1, 24), cpu()], BIG, drafts=[SMALL])) == (
        *("cuda:1", "auto", ""),
        (("small", "cuda:0"),),
    )


def test_a_target_that_fits_no_gpu_alone_is_divided_over_them_in_their_order() -> None:
    splits = propose([gpu(0, 8), gpu(1, 12), cpu()], BIG, drafts=[SMALL])
    assert first(splits) == ("cuda:0,cuda:1", "auto", "8.0,12.0", (("small", "cpu"),))
    assert "cuda:0 and cuda:1 together" in splits[0].place.reason


def test_a_target_is_divided_over_the_cards_alone_and_the_integrated_gpu_drafts() -> None:
    splits = propose([igpu(10), gpu(0, 8), gpu(1, 12), cpu()], model("big", 18), drafts=[SMALL])
    divided = [split for split in splits if split.place.tensor_split]
    assert first(divided) == ("cuda:0,cuda:1", "auto", "8.0,12.0", (("small", "vulkan:0"),))


def test_a_card_that_two_backends_list_is_no_second_card() -> None:
    twice = [gpu(0, 9), gpu(0, 9, "Vulkan"), cpu()]
    splits = propose(twice, BIG, drafts=[SMALL])
    assert {split.place.device for split in splits} == {"cuda:0", "cpu"}
    assert not [split for split in splits if split.place.tensor_split]
    assert not [split for split in splits for _, device in split.drafts if device == "vulkan:0"]


def test_a_target_larger_than_the_card_keeps_layers_on_the_cpu() -> None:
    splits = propose([gpu(0, 9), cpu()], BIG, drafts=[SMALL])
    assert first(splits)[:3] == ("cuda:0", "20", "")
    assert "20 of 40 layers" in splits[0].place.reason
    assert "a smaller quantisation would be faster" in splits[0].place.reason
    assert not splits[0].drafts, "the CPU computes half of the target, so it is not free"


def test_a_smaller_quantisation_that_fits_the_card_is_proposed_after_the_model_that_was_asked_for() -> None:
    splits = propose([gpu(0, 9), cpu()], BIG, smaller=[model("big-q8", 10), model("big-q4", 7)])
    assert [split.place.target for split in splits] == ["big", "big", "big-q4"]
    whole = propose([gpu(0, 24), cpu()], BIG, smaller=[model("big-q4", 7)])
    assert {split.place.target for split in whole} == {"big"}


def test_a_second_box_drafts_where_this_one_has_nothing_free() -> None:
    laptop = Spare("laptop", "tiny", "metal")
    splits = propose([gpu(0, 24), cpu()], BIG, drafts=[SMALL], spares=[laptop])
    assert splits[0].drafts == ()
    assert splits[0].reason == "machines that joined draft: tiny on laptop (metal)"
    assert splits[1].drafts == (("small", "cpu"),)


def test_on_the_cpu_alone_drafting_is_tried_last() -> None:
    splits = propose([cpu()], BIG, drafts=[SMALL])
    assert [(split.drafts, split.shared) for split in splits] == [((), False), ((("small", "cpu"),), True)]
    assert "slows both" in splits[1].reason


def test_a_gpu_alone_leaves_the_cpu_to_the_drafter() -> None:
    assert first(propose([gpu(0, 24), cpu()], BIG, drafts=[SMALL])) == ("cuda:0", "auto", "", (("small", "cpu"),))


def test_a_draft_model_that_does_not_fit_beside_the_target_is_not_proposed() -> None:
    splits = propose([cpu(20)], BIG, drafts=[model("medium", 8), SMALL])
    assert {drafts for split in splits for drafts in split.drafts} == {("small", "cpu")}


def test_an_integrated_gpu_and_the_cpu_have_one_memory() -> None:
    """32 GB are free once, not twice: 17 for the target leave too little for 16 more."""
    assert not [split for split in propose([igpu(32), cpu(32)], BIG, drafts=[model("medium", 16)]) if split.drafts]
    splits = propose([igpu(40), cpu(40)], BIG, drafts=[SMALL])
    assert first(splits) == ("vulkan:0", "auto", "", (("small", "cpu"),))
    assert "its memory is the target's too" in splits[0].reason


def test_a_target_that_fits_nowhere_has_no_place() -> None:
    assert propose([gpu(0, 1), cpu(8)], BIG, drafts=[SMALL]) == []


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_few_draft_models_are_considered_on_each_device(count: int) -> None:
    drafts = [model(f"small-{index}", 1) for index in range(count)]
    splits = propose([gpu(0, 24), gpu(1, 8), cpu()], BIG, drafts=drafts)
    apart = [split for split in splits if split.drafts and split.place.device == "cuda:0" and not split.shared]
    assert len(apart) == 2 * min(count, 2)
    assert [split.drafts[0][1] for split in apart] == sorted((split.drafts[0][1] for split in apart), reverse=True)


def test_every_proposal_says_why() -> None:
    for split in propose([gpu(0, 9), gpu(1, 9), cpu()], BIG, [model("q4", 5)], [SMALL], [Spare("h", "m", "cpu")]):
        assert all(split.reasons)
