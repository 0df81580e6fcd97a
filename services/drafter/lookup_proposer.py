"""Drafts by lookup: what followed the last time these tokens were seen, in the prompt, the output or other answers.

No model, microseconds per step. Idea: prompt lookup decoding (Saxena 2023), suffix decoding (Oliaro et al. 2024).
"""

from collections.abc import Sequence
from typing import Final

from services.drafter.proposer import Draft, Opening, Path

_KEY: Final = 3  # tokens that must match before a place is looked at; two match by accident in ordinary prose
_PLACES: Final = 8  # latest places per key that are compared; more find little and cost time on repetitive text
_LONGEST_MATCH: Final = 64
_STORE_TOKENS: Final = 50_000  # answers of ended requests that are kept, about 20 MB of index


class SuffixIndex:
    """Places of every key in a growing list of tokens."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._places: dict[tuple[int, ...], list[int]] = {}

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens; each key is found from the next call on."""
        for token in tokens:
            self.tokens.append(token)
            end = len(self.tokens)
            if end >= _KEY:
                places = self._places.setdefault(tuple(self.tokens[end - _KEY :]), [])
                places.append(end)
                if len(places) > _PLACES:
                    del places[0]

    def follow(self, suffix: Sequence[int], count: int) -> tuple[int, list[int]]:
        """Length of the longest earlier match of `suffix`, and up to `count` tokens that followed it there."""
        best, found = 0, 0
        for place in reversed(self._places.get(tuple(suffix[-_KEY:]), ())):
            if place >= len(self.tokens):
                continue  # the end itself: nothing follows
            length = self._match(suffix, place)
            if length > best:
                best, found = length, place
        return best, self.tokens[found : found + count] if best else []

    def _match(self, suffix: Sequence[int], place: int) -> int:
        length = _KEY
        longest = min(len(suffix), place, _LONGEST_MATCH)
        while length < longest and suffix[-1 - length] == self.tokens[place - 1 - length]:
            length += 1
        return length


class _Session:
    def __init__(self, opening: Opening) -> None:
        self.opening = opening
        self.path = Path(opening.prompt, opening.committed)
        self.index = SuffixIndex()
        self.index.extend(opening.prompt)
        self.index.extend(opening.committed)
        self.lead = opening.lead


class LookupProposer:
    """Sessions of the lookup drafter and a bounded store of what ended requests answered."""

    def __init__(self, capacity: int = 256) -> None:
        """`capacity` sessions at most, of some hundred kilobytes each; more are ignored."""
        self.capacity = capacity
        self._sessions: dict[str, _Session] = {}
        self._waiting: list[str] = []  # sessions that changed since the last step
        self._store = SuffixIndex()
        self._older = SuffixIndex()

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    @property
    def step_us(self) -> int:
        return 0

    @property
    def burst(self) -> int:
        return 1

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    def open(self, opening: Opening) -> None:
        if len(self._sessions) >= self.capacity and opening.request_id not in self._sessions:
            return
        self._sessions[opening.request_id] = _Session(opening)
        self._waiting.append(opening.request_id)

    def commit(self, request_id: str, base: int, tokens: tuple[int, ...], lead: int, want: int = 0) -> bool:
        session = self._sessions.get(request_id)
        if session is None:
            return True
        before = session.path.committed
        session.lead = lead
        if session.path.commit(base, tokens) is None:
            return False
        session.index.extend(session.path.output[before : session.path.committed])
        self._waiting.append(request_id)
        return True

    def close(self, request_id: str) -> None:
        session = self._sessions.pop(request_id, None)
        if session is None:
            return
        self._store.extend(session.path.output[: session.path.committed])
        if len(self._store.tokens) > _STORE_TOKENS // 2:
            self._older, self._store = self._store, SuffixIndex()

    def step(self) -> list[Draft]:
        waiting, self._waiting = self._waiting, []
        drafts = []
        for request_id in dict.fromkeys(waiting):
            session = self._sessions.get(request_id)
            if session is not None:
                draft = self._draft(session)
                if draft is not None:
                    drafts.append(draft)
        return drafts

    def _draft(self, session: _Session) -> Draft | None:
        """A new guess where the last one ended or proved wrong, as long as its match deserves."""
        path = session.path
        if path.lead > session.lead // 2:
            return None  # the last guess still holds and reaches far enough
        path.drop_guesses()
        suffix = session.index.tokens[-_LONGEST_MATCH:]
        match, tokens = max(
            (index.follow(suffix, session.lead) for index in (session.index, self._store, self._older)),
            key=lambda found: found[0],
        )
        tokens = tokens[: min(session.lead, 2 * match)]
        for position, token in enumerate(tokens):
            if token >= session.opening.n_vocab:
                tokens = tokens[:position]
                break
            if token in session.opening.eog:
                tokens = tokens[: position + 1]
                break
        if not tokens:
            return None
        base, prefix_hash = path.committed, path.hash(path.committed)
        for token in tokens:
            path.guess(token)
        # A copy that has matched for long goes on for long, so confidence grows along the match and stays.
        scores = tuple((match + position) / (match + position + 2.0) for position in range(len(tokens)))
        return Draft(session.opening.request_id, base, prefix_hash, tuple(tokens), scores)
