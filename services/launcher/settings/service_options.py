"""The keys of `draftmesh.toml` for the services, which parse their own options, and how `up` hands them on.

A service that `up` starts reads no file: `up` decides what its own options cover, and passes the rest as environment
variables.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from shared.errors import StartError
from shared.settings.drafter_options import DrafterOptions
from shared.settings.gateway_options import GatewayOptions
from shared.settings.options import variable
from shared.settings.options_struct import declarations
from shared.settings.settings_file import Command, ConfigFile, FileEntry
from shared.settings.verifier_options import VerifierOptions

STRUCTS: Final[Mapping[Command, type]] = {
    ("gateway",): GatewayOptions,
    ("verifier",): VerifierOptions,
    ("drafter",): DrafterOptions,
}
KEYS: Final[Mapping[Command, Collection[str]]] = {
    command: frozenset(declarations(struct)) for command, struct in STRUCTS.items()
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
            twins[command[0]] = {variable(key): _text(entry) for key, entry in entries.items() if key not in decided}
            notes += [
                f"{entry.place}: {key} of [{command[0]}] is not used: `up` sets it"
                for key, entry in file.tables.get(command, {}).items()
                if key in decided
            ]
    return Handed(twins, tuple(notes))


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
