"""The arithmetic of a run: when each commit arrived, and what happened while all streams flowed. Pure."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.gateway.client import Arrivals
from bench.gateway.target import Commits


@dataclass(frozen=True, slots=True)
class Window:
    """The time in which every stream flowed, in nanoseconds of the monotonic clock."""

    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9

    def __contains__(self, moment_ns: int) -> bool:
        return self.start_ns <= moment_ns < self.end_ns


def window(streams: Sequence[Arrivals]) -> Window:
    """From the last stream's first token to the first stream's last."""
    return Window(max(one.read_ns[0] for one in streams), min(one.read_ns[-1] for one in streams))


def tokens_within(streams: Iterable[Arrivals], when: Window) -> int:
    """Tokens that arrived in the window."""
    return sum(_offset_at(one, when.end_ns) - _offset_at(one, when.start_ns) for one in streams)


def _offset_at(stream: Arrivals, moment_ns: int) -> int:
    reads = bisect_left(stream.read_ns, moment_ns)
    return stream.offsets[reads - 1] if reads else 0


def added_ms(commits: Mapping[int, Commits], streams: Iterable[Arrivals], when: Window) -> list[float]:
    """For each commit sent in the window the milliseconds until a client had read its last token."""
    latencies = []
    for stream in streams:
        sent = commits[stream.seed]
        for offset, sent_ns in zip(sent.offsets, sent.sent_ns, strict=True):
            read = bisect_left(stream.offsets, offset)
            if sent_ns in when and read < len(stream.offsets):
                latencies.append((stream.read_ns[read] - sent_ns) / 1e6)
    return latencies
