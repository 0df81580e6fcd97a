"""Drafts by lookup: copies what followed the last tokens earlier, in the prompt, the output or the caller's other
requests.

It needs no model and microseconds per step. Ideas: prompt lookup decoding (Saxena 2023), suffix decoding (Oliaro et al.
2024).
"""

from services.drafter.copier import Copier
from services.drafter.proposer import Draft, Opening, Path
from services.drafter.store import Store


class _Session:
    def __init__(self, opening: Opening, copier: Copier) -> None:
        self.opening = opening
        self.path = Path(opening.prompt, opening.committed)
        self.copier = copier
        self.lead = opening.lead


class LookupProposer:
    """The sessions of the lookup drafter, and a bounded store per model and caller of the text of other requests."""

    step_us = 0
    burst = 1

    def __init__(self, capacity: int = 256) -> None:
        """At most `capacity` sessions, of about fifty bytes per token; `open` ignores more."""
        self.capacity = capacity
        self._sessions: dict[str, _Session] = {}
        self._waiting: list[str] = []  # sessions that changed since the last step
        self._store = Store()

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    def open(self, opening: Opening) -> None:
        if len(self._sessions) >= self.capacity and opening.request_id not in self._sessions:
            return
        others = self._store.index(opening.model, opening.caller) if opening.share else None
        copier = Copier((*opening.prompt, *opening.committed), others)
        self._sessions[opening.request_id] = _Session(opening, copier)
        self._waiting.append(opening.request_id)

    def commit(
        self, request_id: str, base: int, tokens: tuple[int, ...], lead: int, want: int = 0, worth: float = 0.0
    ) -> bool:
        session = self._sessions.get(request_id)
        if session is None:
            return True
        before = session.path.committed
        session.lead = lead
        if session.path.commit(base, tokens) is None:
            return False
        session.copier.commit(session.path.output[before : session.path.committed])
        self._waiting.append(request_id)
        return True

    def close(self, request_id: str) -> None:
        session = self._sessions.pop(request_id, None)
        if session is not None and session.opening.share:
            opening, path = session.opening, session.path
            self._store.add(opening.model, opening.caller, path.prompt, path.output[: path.committed])

    def step(self) -> list[Draft]:
        waiting, self._waiting = self._waiting, []
        drafts = []
        for request_id in dict.fromkeys(waiting):
            session = self._sessions.get(request_id)
            if session is not None:
                drafts += self._draft(session)
        return drafts

    def _draft(self, session: _Session) -> list[Draft]:
        """New guesses if the last ones proved wrong or reach less than half of the lead."""
        path = session.path
        if path.lead > session.lead // 2:
            return []
        path.drop_guesses()
        base = path.committed
        drafts = []
        for copy in session.copier.copies(session.lead):
            tokens = session.opening.usable(copy.tokens)
            if not tokens or 0 < copy.depth >= path.lead:
                continue
            place = base + copy.depth
            drafts.append(
                Draft(session.opening.request_id, place, path.hash(place), tokens, copy.scores[: len(tokens)])
            )
            if len(drafts) == 1:
                for token in tokens:
                    path.guess(token)
        return drafts
