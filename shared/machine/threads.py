"""How the cores of a machine are divided among the processes that compute on them. Pure."""

from collections.abc import Sequence


def for_drafters(cores: int, targets: int, drafters: int) -> int:
    """How many of the cores all drafters together get beside so many targets while both compute.

    A quarter, or one each up to half: a draft model is small, and clients wait for the target's decodes.
    """
    if not drafters:
        return 0
    return max(cores // 4, min(drafters, cores // 2)) if targets else cores


def evenly(cores: int, count: int) -> list[int]:
    """The cores for `count` processes in equal parts, the first ones with one more; at least one each."""
    if not count:
        return []
    each, rest = divmod(max(0, cores), count)
    return [max(1, each + (index < rest)) for index in range(count)]


def share(cores: int, target: bool, place: int, targets: Sequence[int], drafters: Sequence[int]) -> int:
    """Threads for a process that starts now, a target or a drafter, among all `targets` and `drafters` on the cores.

    The sequences have the threads that each of the processes took, 0 for one that is choosing now, like this one:
    `place` is its place among the choosing ones of its kind. Taken threads stay taken, except that earlier drafters
    count against a target at most with what they would get beside it.
    """
    choosing_targets, choosing_drafters = targets.count(0), drafters.count(0)
    if choosing_targets:
        drafts = for_drafters(cores, len(targets), len(drafters))
        drafts = drafts if choosing_drafters else min(drafts, sum(drafters))
    else:
        drafts = cores - sum(targets)
    if target:
        return evenly(cores - drafts - sum(targets), choosing_targets)[place]
    return evenly(drafts - sum(drafters), choosing_drafters)[place]
