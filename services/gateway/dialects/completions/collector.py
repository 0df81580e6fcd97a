"""Whole completions, with the text that the stream would have had."""

from collections.abc import Sequence

from services.gateway.dialects.completions.request import CompletionRequest
from services.gateway.dialects.completions.text import LegacyLogprobs, echoed
from services.gateway.dialects.openai_frames import head, traces
from services.gateway.generation.choice import CommittedToken, Delta, Event, Finished
from services.gateway.generation.usage import UsageTally
from services.gateway.http.dialect import Identity


class CompletionCollector:
    """Takes every event, then makes the object."""

    def __init__(self, request: CompletionRequest, identity: Identity) -> None:
        self._request = request
        self._prepared = identity.prepared
        self._head = head(identity, "cmpl-", "text_completion")
        self._tally = UsageTally(identity.prepared)
        self._texts: list[list[str]] = [[] for _ in identity.prepared.jobs]
        self._pieces: list[list[CommittedToken]] = [[] for _ in identity.prepared.jobs]
        self._finished: dict[int, Finished] = {}

    def take(self, events: Sequence[Event]) -> None:
        for event in events:
            self._tally.saw(event)
            if isinstance(event, Delta):
                self._texts[event.choice].append(event.text)
                self._pieces[event.choice] += event.pieces
            else:
                self._finished[event.choice] = event

    def body(self) -> dict[str, object]:
        """The object; every choice must have finished."""
        lexicon = self._prepared.lexicon
        prompts = [echoed(prompt, lexicon) if self._request.echo else "" for prompt in self._request.texts]
        jobs = range(len(self._prepared.jobs))
        return {
            **self._head,
            "choices": [self._choice(index, prompts[index // self._request.n]) for index in jobs],
            "usage": self._tally.usage(),
            **self._tally.closing(),
        }

    def _choice(self, index: int, prompt: str) -> dict[str, object]:
        finished, pieces = self._finished[index], self._pieces[index]
        asked = self._request.logprobs is not None
        choice: dict[str, object] = {
            "text": prompt + "".join(self._texts[index]),
            "index": index,
            "logprobs": LegacyLogprobs(self._prepared.lexicon).take(pieces) if asked else None,
            "finish_reason": finished.reason,
        }
        if len(self._prepared.jobs) > 1:
            choice["speculative"] = finished.statistics.report()
        return choice | traces(self._request, pieces)
