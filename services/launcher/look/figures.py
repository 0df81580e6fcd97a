"""Formats the fleet's figures and names for a terminal. Pure."""

import re
from collections.abc import Sequence
from typing import Any, Final

UNKNOWN: Final = "–"
_SHARES: Final = frozenset({"acceptance_rate", "cache_hit_rate"})
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")  # characters that could control a terminal
_BARS: Final = "▁▂▃▄▅▆▇█"


def shown(column: str, value: Any) -> str:
    """A field of one of `shared.fleet.fleet_values`; `UNKNOWN` for None."""
    match value:
        case None:
            return UNKNOWN
        case float() if column in _SHARES:
            return f"{value:.0%}"
        case float():
            return f"{value:.1f}"
        case list() | tuple():
            return ", ".join(plain(str(one)) for one in value)
    return plain(str(value))


def plain(text: str) -> str:
    """`text` without control characters: names come from other machines, and log lines from anywhere."""
    return _CONTROL.sub("�", text)


def age(seconds: float) -> str:
    """A time span in its two largest units: `42 s`, `3 min`, `2 h 5 min`, `4 d 3 h`."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if hours == 0:
        return f"{minutes} min"
    if days == 0:
        return f"{hours} h {minutes % 60} min"
    return f"{days} d {hours % 24} h"


def sparkline(values: Sequence[float], width: int) -> str:
    """The last `width` values as bars between 0 and the largest of them; padded on the left where there are fewer."""
    last = list(values)[-width:] if width > 0 else []
    top = max(last, default=0.0)
    bars = (_BARS[min(len(_BARS) - 1, int(value / top * len(_BARS)))] if top > 0 else _BARS[0] for value in last)
    return "".join(bars).rjust(max(0, width))
