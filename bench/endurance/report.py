"""How what a process holds grew."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.table import Table

from bench.processes import Held

MIB: Final = 1 << 20
_SHOWN_TYPES: Final = 8


def growth_per_hour(samples: Sequence[Held]) -> float:
    """The slope of `anonymous` in bytes per hour, by least squares over the samples."""
    mean_s = sum(held.at_s for held in samples) / len(samples)
    mean = sum(held.anonymous for held in samples) / len(samples)
    spread = sum((held.at_s - mean_s) ** 2 for held in samples)
    return 3600 * sum((held.at_s - mean_s) * (held.anonymous - mean) for held in samples) / spread if spread else 0.0


def settled(samples: Sequence[Held]) -> Sequence[Held]:
    """The second half of them: by then pools, caches and the allocator have found their size."""
    return samples[len(samples) // 2 :]


def table(samples: Mapping[str, Sequence[Held]]) -> Table:
    """A row per process: at the first sample, at half time, at the end, and the slope over the second half."""
    shown = Table("process", "MiB at first", "half-time", "end", "MiB/h then", "files", "threads", "descriptors")
    for name, held in samples.items():
        late = settled(held)
        last = late[-1]
        sizes = [f"{one.anonymous / MIB:.1f}" for one in (held[0], late[0], last)]
        counts = (f"{held[0].threads} → {last.threads}", f"{held[0].descriptors} → {last.descriptors}")
        shown.add_row(name, *sizes, f"{growth_per_hour(late) / MIB:+.1f}", f"{last.files / MIB:.0f}", *counts)
    return shown


def grown(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """The types of which there are more than before, those that grew most first, with both numbers."""
    more = {name: (before.get(name, 0), number) for name, number in after.items() if number > before.get(name, 0)}
    return dict(sorted(more.items(), key=lambda item: item[1][0] - item[1][1])[:_SHOWN_TYPES])


def as_json(
    samples: Mapping[str, Sequence[Held]], types: Mapping[str, Mapping[str, tuple[int, int]]]
) -> dict[str, Any]:
    """The keys of memory.json: by process its samples, its slope in bytes per hour, and the types that grew."""
    return {
        name: {
            "samples": [asdict(one) for one in held],
            "bytes_per_hour": round(growth_per_hour(settled(held))),
            "types": types.get(name, {}),
        }
        for name, held in samples.items()
    }
