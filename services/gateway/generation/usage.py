"""An answer's counts and times, as named by OpenAI (`usage`), llama.cpp (`timings`) and vLLM (`metrics`)."""

import time
from collections.abc import Callable

from services.gateway.generation.choice import Delta, Event, Finished
from services.gateway.generation.draft_statistics import DraftStatistics
from services.gateway.generation.preparation import Prepared


class UsageTally:
    """Adds up the events of all choices, beginning when it is made."""

    def __init__(self, prepared: Prepared, clock: Callable[[], float] = time.monotonic) -> None:
        self._prepared = prepared
        self._clock = clock
        self._began = self._first = self._last = clock()
        self._tokens = 0
        self._finished: dict[int, Finished] = {}

    def saw(self, event: Event) -> None:
        """Count one event."""
        if isinstance(event, Delta):
            self._first = self._first if self._tokens else self._clock()
            self._tokens += len(event.pieces)
        else:
            self._finished[event.choice] = event
            self._last = self._clock()

    @property
    def _complete(self) -> bool:
        """Whether every choice has finished."""
        return len(self._finished) == len(self._prepared.jobs)

    def usage(self) -> dict[str, object]:
        """OpenAI's object; its details once every choice has finished."""
        prompt = self._prepared.prompt_tokens
        usage: dict[str, object] = {
            "prompt_tokens": prompt,
            "completion_tokens": self._tokens,
            "total_tokens": prompt + self._tokens,
        }
        if self._complete:
            usage["prompt_tokens_details"] = {"cached_tokens": self._cached()}
            reasoning = sum(choice.reasoning for choice in self._finished.values())
            usage["completion_tokens_details"] = {"reasoning_tokens": reasoning}
        return usage

    def closing(self) -> dict[str, object]:
        """What the end of an answer carries: the seed, the sum over the choices that have finished, and the details."""
        sums: dict[str, object] = {"seed": self._prepared.seed, "speculative": self._statistics().report()}
        return sums | self._details() if self._complete else sums

    def _details(self) -> dict[str, object]:
        """llama.cpp's and vLLM's objects, as the gateway saw the answer: waiting for a verifier is prompt time."""
        statistics = self._statistics()
        cached = self._cached()
        prompt_s, predicted_s = self._first - self._began, self._last - self._first
        timings = {
            "cache_n": cached,
            **_rate("prompt", self._prepared.prompt_tokens - cached, prompt_s),
            **_rate("predicted", self._tokens, predicted_s),
            "draft_n": statistics.drafted,
            "draft_n_accepted": statistics.accepted,
        }
        return {"timings": timings, "metrics": {"speculative_decoding": statistics.vllm()}}

    def _statistics(self) -> DraftStatistics:
        total = DraftStatistics()
        for finished in self._finished.values():
            total.merge(finished.statistics)
        return total

    def _cached(self) -> int:
        """A prompt and its cached tokens count once, whatever the number of choices."""
        jobs, choices = self._prepared.jobs, self._prepared.choices
        firsts = range(0, len(jobs), choices)
        return sum(min(len(jobs[index].prompt), self._finished[index].cached) for index in firsts)


def _rate(name: str, count: int, seconds: float) -> dict[str, float]:
    return {
        f"{name}_n": count,
        f"{name}_ms": round(1000 * seconds, 3),
        f"{name}_per_token_ms": round(1000 * seconds / count, 3) if count else 0.0,
        f"{name}_per_second": round(count / seconds, 3) if seconds > 0 else 0.0,
    }
