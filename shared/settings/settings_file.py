"""`draftmesh.toml`: options for every command, written once.

A key is an option's long name, with dashes or underscores. In a table named after a command (`[up]`, `[gateway]`,
`[keys.new]`) it holds for that command. At the top level stand options that have environment twins; they hold for every
command that has the option, unless its table says otherwise:

    target_model = "hf:user/model-GGUF:Q4_K_M"
    draft_model = ["/models/small.gguf"]

    [gateway]
    max_requests = 64

The command line wins over the environment, and the environment over the file. A relative path that exists beside the
file means the one there. What no command knows is an error that names the line; so is a secret that every user of
the machine could read.
"""

import difflib
import os
import stat
import sys
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shared.errors import StartError
from shared.folders import config_folder

NAME: Final = "draftmesh.toml"
OPTION: Final = "--config"
VARIABLE: Final = "DRAFTMESH_CONFIG"
OFF: Final = "off"
SECRETS: Final = frozenset({"api_key"})
_PATHS: Final = frozenset({"target_model", "draft_model", "api_keys_file"})
_LARGEST: Final = 1 << 20  # bytes; a larger file is not one of ours

Command = tuple[str, ...]  # ("up",), ("keys", "new"); (): the top level of a file
Known = Mapping[Command, Collection[str]]  # keys by command


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One value of the file, and its place there."""

    key: str
    value: Any
    place: str  # file:line


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The entries by table, their keys with underscores."""

    path: Path
    tables: Mapping[Command, Mapping[str, FileEntry]]
    headers: Mapping[Command, str]  # file:line of each table

    def entries(self, command: Command, general: Collection[str]) -> dict[str, FileEntry]:
        """The entries for `command`: its own table, and below it the `general` keys of the top level."""
        top = {key: entry for key, entry in self.tables.get((), {}).items() if key in general}
        return top | dict(self.tables.get(command, {}))

    def check(self, known: Known, general: Collection[str]) -> None:
        """Raise `StartError` for the first table that is not in `known`, and the first misplaced key.

        `general` are the keys that the top level may have.
        """
        groups = {command[:-1] for command in known}
        for command, entries in self.tables.items():
            if command and command not in known and (entries or command not in groups):
                name = ".".join(command)
                raise _unknown(self.headers[command], f"[{name}]", "no such command", name, map(".".join, known))
            for entry in entries.values():
                if entry.key not in (known[command] if command else general):
                    raise _misplaced(entry, command, known, general)

    def check_own(self, command: Command, keys: Collection[str]) -> None:
        """`check` for a process that knows one command only."""
        ConfigFile(self.path, {command: self.tables.get(command, {})}, self.headers).check({command: keys}, ())


def find(chosen: str) -> Path | None:
    """The file to read: `chosen`, else `./draftmesh.toml`, else the user's own. None for "off", or if there is none.

    Raises `StartError` for a `chosen` that is not there, and for a file in this folder that another user could have
    written.
    """
    if chosen == OFF:
        return None
    if chosen:
        path = Path(os.path.expanduser(chosen))
        if not _is_file(path):
            raise StartError(OPTION, chosen, f"no such file; `draftmesh setup` writes one, {OFF} reads none")
        return Path(os.path.abspath(path))
    if _is_file(Path(NAME)):
        here = Path(NAME).absolute()
        _check_ours(here)
        return here
    home = config_folder() / NAME
    return home if _is_file(home) else None


def read(path: Path) -> ConfigFile:
    """The file's entries. Raises `StartError` for a file that cannot be read, is not TOML, or shows secrets to every
    user."""
    try:
        raw = path.read_bytes()
        if len(raw) > _LARGEST:
            raise StartError(OPTION, path, f"over {_LARGEST >> 20} MiB, so it is not a {NAME}")
        text = raw.decode()
        content = tomllib.loads(text)
    except OSError as error:
        raise StartError(OPTION, path, f"cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise StartError(OPTION, path, "not a text file in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise StartError(OPTION, path, f"not TOML: {error}") from None
    file = _file(path, content, _lines(text))
    _check_closed(file)
    return file


def is_secret(key: str, value: object) -> bool:
    """Whether only the owner may see it: a key, a token, an address with a password."""
    if key in SECRETS:
        return bool(value)
    return isinstance(value, str) and "://" in value and ("@" in value or "password=" in value)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a home folder that a sandbox hides
        return False


def _check_ours(path: Path) -> None:
    if not hasattr(os, "getuid"):
        return
    status = path.stat()
    if status.st_uid not in (os.getuid(), 0) or status.st_mode & stat.S_IWOTH:
        raise StartError(
            OPTION,
            path,
            f"other users can write this file; {OPTION} {NAME} uses it all the same, {OPTION} {OFF} ignores it",
        )


def _check_closed(file: ConfigFile) -> None:
    if sys.platform == "win32" or not file.path.stat().st_mode & stat.S_IROTH:
        return
    for entries in file.tables.values():
        for entry in entries.values():
            if is_secret(entry.key, entry.value):
                raise StartError(
                    f"{entry.place}:",
                    entry.key,
                    f"is a secret that every user here can read; run chmod 600 {file.path}",
                )


def _located(key: str, value: Any, folder: Path) -> Any:
    if key not in _PATHS:
        return value
    if isinstance(value, list):
        return [_located(key, part, folder) for part in value]
    if isinstance(value, str) and value and (folder / value.partition("#")[0]).is_file():
        return str(folder / value)
    return value


def _file(path: Path, content: Mapping[str, Any], lines: Mapping[Command, int]) -> ConfigFile:
    tables: dict[Command, dict[str, FileEntry]] = {}
    headers: dict[Command, str] = {}

    def place(*keys: str) -> str:
        return f"{path}:{lines.get(keys, 1)}"

    waiting: list[tuple[Command, Mapping[str, Any]]] = [((), content)]
    while waiting:
        table, values = waiting.pop()
        headers[table] = place(*table)
        entries = tables.setdefault(table, {})
        for written, value in values.items():
            if isinstance(value, dict):
                waiting.append(((*table, written), value))
                continue
            key = written.replace("-", "_")
            if key in entries:
                raise StartError(f"{place(*table, written)}:", written, f"is also at {entries[key].place}")
            entries[key] = FileEntry(key, _located(key, value, path.parent), place(*table, written))
    return ConfigFile(path, tables, headers)


def _lines(text: str) -> dict[Command, int]:
    """The line of every key. A statement is valid TOML by itself, so each one is parsed alone, from its first line
    on."""
    found: dict[Command, int] = {}
    table: Command = ()
    statement, begin = "", 1
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        if not statement:
            begin = number
        statement += line
        try:
            content = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue  # a value that goes on in the next line
        header = statement.lstrip().startswith("[")
        statement = ""
        for path in _paths(content):
            if header:
                table = path
            found.setdefault(path if header else (*table, *path), begin)
    return found


def _paths(content: Mapping[str, Any], above: Command = ()) -> Iterator[Command]:
    for key, value in content.items():
        if isinstance(value, dict) and value:
            yield from _paths(value, (*above, key))
        else:
            yield (*above, key)


def _misplaced(entry: FileEntry, command: Command, known: Known, general: Collection[str]) -> StartError:
    """The error for a key that `command` does not have, or that the top level may not have."""
    problem = f"{' '.join(command)} has no such option" if command else "no command has this option"
    if others := sorted(".".join(other) for other, keys in known.items() if entry.key in keys):
        problem = problem if command else "means something else to each command"
        return StartError(f"{entry.place}:", entry.key, f"{problem}; it belongs under [{others[0]}]")
    return _unknown(entry.place, entry.key, problem, entry.key, known[command] if command else general)


def _unknown(place: str, shown: str, problem: str, name: str, possible: Iterable[str]) -> StartError:
    near = difflib.get_close_matches(name, sorted(set(possible)), 1, 0.5)
    return StartError(f"{place}:", shown, f"{problem}{f'; did you mean {near[0]}?' if near else ''}")
