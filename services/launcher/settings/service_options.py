"""The keys of `draftmesh.toml` for the services, which parse their own options, and how `up` hands them on.

A service that `up` starts reads no file: `up` decides what its own options cover, and passes the rest as environment
variables.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from shared.errors import StartError
from shared.settings.settings_file import Command, ConfigFile, FileEntry

# A test compares these with the services' own parsers, whose import takes a second.
KEYS: Final[Mapping[Command, Collection[str]]] = {
    ("gateway",): frozenset(
        {
            "redis",
            "host",
            "port",
            "max_requests",
            "max_requests_per_key",
            "max_live_tokens",
            "api_key",
            "api_keys_file",
            "no_auth",
            "published_host",
            "request_timeout",
            "absence_grace",
            "traces",
            "log_level",
        }
    ),
    ("verifier",): frozenset(
        {
            "redis",
            "target_model",
            "alias",
            "target_device",
            "ctx",
            "parallel",
            "threads",
            "cache_type_k",
            "cache_type_v",
            "flash_attn",
            "exactness",
            "gpu_layers",
            "tensor_split",
            "offline",
            "speculation",
            "lease",
            "traces",
            "log_level",
        }
    ),
    ("drafter",): frozenset(
        {
            "redis",
            "draft_model",
            "draft_device",
            "ctx",
            "parallel",
            "threads",
            "gpu_layers",
            "offline",
            "log_level",
            "name",
        }
    ),
}


@dataclass(frozen=True, slots=True)
class Handed:
    """Environment variables for each service that `up` starts, and the keys of the file that it cannot use."""

    twins: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def hand_down(file: ConfigFile | None, decided: Collection[str]) -> Handed:
    """The file's settings for each service, except the options that `up` has `decided`."""
    twins: dict[str, dict[str, str]] = {}
    notes = []
    if file is not None:
        for command, keys in KEYS.items():
            entries = file.entries(command, keys)
            twins[command[0]] = {_twin(key): _text(entry) for key, entry in entries.items() if key not in decided}
            notes += [
                f"{entry.place}: {key} of [{command[0]}] is not used: `up` sets it"
                for key, entry in file.tables.get(command, {}).items()
                if key in decided
            ]
    return Handed(twins, tuple(notes))


def _twin(key: str) -> str:
    return f"DRAFTMESH_{key.upper()}"


def _text(entry: FileEntry) -> str:
    """The value as an environment variable holds it: the parts of a list are separated by spaces."""
    if not isinstance(entry.value, list):
        return _word(entry.value)
    words = [_word(value) for value in entry.value]
    if any(len(word.split()) != 1 for word in words):
        raise StartError(f"{entry.place}:", entry.key, "up can hand on only parts without spaces in them")
    return " ".join(words)


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
