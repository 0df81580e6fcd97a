"""Finds the model for each name, from the verifiers' cards. Pure.

A model's own name always means that model. An alias means the model whose verifier has claimed it for longest. A claim
of another model, or on a served model's own name, is a conflict and has no effect. Names compare exactly, except that
Ollama's ":latest" after a name is ignored.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from shared.errors import StartError
from shared.wire.messages import MAX_ALIASES, MAX_NAME, VerifierCard

DEFAULT: Final = "default"  # the name for a request that names no model
LATEST: Final = ":latest"


@dataclass(frozen=True, slots=True)
class Conflict:
    """An alias that `model` claims but that means `winner`."""

    alias: str
    model: str
    winner: str

    def __str__(self) -> str:
        reason = (
            "that is a model's own name" if self.winner == self.alias else f"it means {self.winner}, an older claim"
        )
        return f"alias '{self.alias}' of {self.model} has no effect: {reason}"


@dataclass(frozen=True, slots=True)
class Names:
    """Every name that a request may ask for now."""

    models: tuple[str, ...] = ()  # the default model first, the others in order
    aliases: Mapping[str, str] = field(default_factory=dict)  # to model, in order
    conflicts: tuple[Conflict, ...] = ()

    @property
    def default(self) -> str | None:
        """The model for requests that name none: the one with that name or alias, else the only one."""
        if DEFAULT in self.models:
            return DEFAULT
        return self.aliases.get(DEFAULT) or (self.models[0] if len(self.models) == 1 else None)

    def find(self, name: str | None) -> str | None:
        """The model of this name; without a name the default one. None if it is not served."""
        for wanted in (name, name.removesuffix(LATEST)) if name else (DEFAULT,):
            if wanted in self.models:
                return wanted
            if wanted in self.aliases:
                return self.aliases[wanted]
            if wanted == DEFAULT:
                return self.default
        return None

    def of(self, model: str) -> tuple[str, ...]:
        return tuple(alias for alias, target in self.aliases.items() if target == model)

    def nearest(self, name: str) -> str | None:
        """The known name that is most like this one, if any is similar."""
        known = {one.lower(): one for one in (*self.aliases, *self.models)}
        close = get_close_matches(name.removesuffix(LATEST).lower()[:MAX_NAME], known, n=1)
        return known[close[0]] if close else None

    def listing(self) -> str:
        """All names for people: `big (also fast, default), small`."""
        parts = []
        for model in self.models:
            also = ", ".join(self.of(model))
            parts.append(f"{model} (also {also})" if also else model)
        return ", ".join(parts)


def resolve(cards: Iterable[VerifierCard]) -> Names:
    """The names that these verifiers claim, with their models."""
    oldest: dict[str, dict[str, tuple[int, str]]] = defaultdict(dict)  # alias, model: since when it is claimed
    models = set()
    for card in cards:
        models.add(card.model)
        for alias in card.aliases:
            if alias != card.model:
                since = (card.created, card.id)
                oldest[alias][card.model] = min(since, oldest[alias].get(card.model, since))
    winners = {
        alias: alias if alias in models else min(claims, key=claims.__getitem__)
        for alias, claims in sorted(oldest.items())
    }
    aliases = {alias: winner for alias, winner in winners.items() if winner != alias}
    first = aliases.get(DEFAULT)
    return Names(
        models=tuple(sorted(models, key=lambda model: (model != first, model))),
        aliases=aliases,
        conflicts=tuple(
            Conflict(alias, model, winner)
            for alias, winner in winners.items()
            for model in sorted(oldest[alias])
            if model != winner
        ),
    )


def check_aliases(aliases: Iterable[str]) -> tuple[str, ...]:
    """The aliases, each once. Raises `StartError` for a name that no client could request."""
    found = tuple(dict.fromkeys(aliases))
    for alias in found:
        if not 0 < len(alias) <= MAX_NAME or not alias.isprintable() or any(one in " =" for one in alias):
            raise StartError("--alias", alias, f"up to {MAX_NAME} characters without spaces and '='")
    if len(found) > MAX_ALIASES:
        raise StartError("--alias", len(found), f"at most {MAX_ALIASES} names for one model")
    return found
