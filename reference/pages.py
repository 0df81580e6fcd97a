"""Which pages are generated, and of what."""

from collections.abc import Callable, Mapping
from typing import Final

from reference import commands, events, licences, messages, metrics, redis_keys, routes, settings
from reference.source import ROOT

FOLDER: Final = ROOT / "docs/reference"
PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "commands.md": commands.text,
    "settings.md": settings.text,
    "http.md": routes.text,
    "metrics.md": metrics.text,
    "keys.md": redis_keys.text,
    "messages.md": messages.text,
    "events.md": events.text,
    "licences.md": licences.text,
}
