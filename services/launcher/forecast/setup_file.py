"""The `draftmesh.toml` that `setup` writes: the decisions, with comments that say why and what to expect. Pure.

It writes strings as JSON does, which is also valid TOML.
"""

import json
from collections.abc import Sequence
from typing import Final

from services.launcher.forecast.split import Split
from shared.model.offload import AUTO
from shared.settings.options import DEFAULT_PORT

_ADDRESS: Final = (
    "# Where clients find it. To be reached from other machines it needs keys: `draftmesh keys new` makes one.",
    '# host = "127.0.0.1"',
    f"# port = {DEFAULT_PORT}",
    '# api_keys_file = ""',
)


def render(split: Split, expected: Sequence[str], redis: str, seen: Sequence[str]) -> str:
    """The file's text. `expected` and `seen` (the devices) become comments; `redis` "" leaves it to `up`."""
    place = split.place
    lines = [
        "# Written by `draftmesh setup`. A key is an option of a command (`draftmesh up --help`), in a table such as",
        "# [up] for that command alone. The command line wins over the environment, and that over this file.",
        "# `draftmesh config show` says what is in effect, `draftmesh config check` whether all of it is allowed.",
        "",
        *_comment("This machine has", seen),
        *_comment("Why", split.reasons),
        *_comment("To be expected", expected),
        "",
        f"target_model = {_value(place.target)}",
        f"target_device = {_value(place.device)}",
    ]
    if place.gpu_layers != AUTO:
        lines.append(
            f"gpu_layers = {place.gpu_layers} # of the target; more of them need more memory, fewer are slower"
        )
    if place.tensor_split:
        lines.append(f"tensor_split = {_value(place.tensor_split)} # shares of the target per GPU")
    lines.append("")
    if split.drafts:
        lines += [
            "# One drafter each; another one guesses by copying earlier text, and costs next to nothing.",
            f"draft_model = {_value([model for model, _ in split.drafts])}",
            f"draft_device = {_value([device for _, device in split.drafts])}",
        ]
    else:
        lines += [
            "# A small model with the target's vocabulary would guess ahead; `draftmesh models` lists those here.",
            "# draft_model = []",
            "# draft_device = []",
        ]
    lines += ["", *_redis(redis), "", *_ADDRESS]
    if place.gpu_layers != AUTO:
        for command in ("drafter", "join"):
            lines += ["", f"[{command}]", f"gpu_layers = {_value(AUTO)} # the number above is the target's"]
    return "\n".join(lines) + "\n"


def _redis(url: str) -> list[str]:
    if url:
        return [f"redis = {_value(url)}"]
    return ["# Without a Redis of yours, `draftmesh up` brings its own, for this machine only.", '# redis = ""']


def _comment(title: str, lines: Sequence[str]) -> list[str]:
    if not lines:
        return []
    return [f"# {title}:", *(f"#   {''.join(c if c.isprintable() else ' ' for c in line)}" for line in lines)]


def _value(value: str | list[str]) -> str:
    """Escapes DEL, the only character that JSON allows unescaped and TOML does not."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
