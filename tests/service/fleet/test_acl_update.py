"""Users of a running server change without a new password for anybody, and the administrator can do what we say."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import redis

from services.launcher.fleet import access_rules, acl
from shared.errors import StartError
from shared.wire import keys
from tests.server import valkey_server

ADDRESS: Final = "redis://127.0.0.1:0/0"
RUNBOOKS: Final = Path(__file__).parents[3] / "docs/operations.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    acl.write(tmp_path, ADDRESS, ["laptop", "desk"])
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[str]:
    """A server with these users; what replaces port 0 in their addresses."""
    with valkey_server("127.0.0.1", "--aclfile", str(folder / acl.USERS)) as one:
        yield one.url[8:-2]


def client(folder: Path, user: str, server: str) -> redis.Redis:
    line = (folder / f"{user}.env").read_text().strip().removeprefix("DRAFTMESH_REDIS=")
    return redis.Redis.from_url(line.replace("127.0.0.1:0", server))


def test_an_update_brings_new_rights_and_keeps_every_password(folder: Path, server: str) -> None:
    before = {file.name: file.read_text() for file in folder.iterdir()}
    users = folder / acl.USERS
    old = re.sub(r"(?m)^(user drafter\S* on #\w+).*$", r"\1 resetkeys -@all +ping", users.read_text())
    users.write_text(f"{old}user own on nopass ~mine:* +@all\n")
    assert acl.update(folder, ADDRESS) == [users]
    assert {file.name: file.read_text() for file in folder.iterdir()} == {
        **before,
        acl.USERS: f"{before[acl.USERS]}user own on nopass ~mine:* +@all\n",
    }
    with client(folder, "admin", server) as admin:
        admin.execute_command("ACL LOAD")
    with client(folder, "drafter", server) as drafter:
        assert drafter.smembers(keys.cards()) == set()


def test_a_service_that_is_new_in_a_release_gets_a_user(folder: Path) -> None:
    users = folder / acl.USERS
    users.write_text(re.sub(r"(?m)^user admin .*\n", "", users.read_text()))
    (folder / "admin.env").unlink()
    assert acl.update(folder, ADDRESS) == [users, folder / "admin.env"]
    assert (folder / "admin.env").stat().st_mode & 0o077 == 0


def test_a_revoked_machine_is_out_at_once_and_no_other_is(folder: Path, server: str) -> None:
    with (
        client(folder, "drafter-laptop", server) as laptop,
        client(folder, "drafter-desk", server) as desk,
        client(folder, "admin", server) as admin,
    ):
        for one in (laptop, desk):
            assert one.ping()
        acl.update(folder, ADDRESS, ["tablet"], ["laptop"])
        assert not (folder / "drafter-laptop.env").exists()
        admin.execute_command("ACL LOAD")
        with pytest.raises(redis.exceptions.ConnectionError):
            laptop.ping()
        assert desk.ping()
        with client(folder, "drafter-tablet", server) as tablet:
            assert tablet.ping()


def test_what_cannot_be_updated_is_one_sentence_and_changes_nothing(folder: Path, tmp_path: Path) -> None:
    before = {file.name: file.read_text() for file in folder.iterdir()}
    with pytest.raises(StartError, match=r"--revoke .*nobody.* has no user"):
        acl.update(folder, ADDRESS, ["new"], ["nobody"])
    for name in ("", "Big", "a b", "x" * 33, "a@b", "*"):
        with pytest.raises(StartError, match=r"NAME .* small letters"):
            acl.update(folder, ADDRESS, [name])
    with pytest.raises(StartError, match=r"FOLDER .* cannot be read"):
        acl.update(tmp_path / "none", ADDRESS)
    assert {file.name: file.read_text() for file in folder.iterdir()} == before


# What the runbooks name without its arguments.
ARGUMENTS: Final = {
    "CONFIG SET maxmemory": ("100mb",),
    "MEMORY USAGE": ("draftmesh:key",),
    "SLOWLOG": ("GET",),
    "KEYS *": (),
    "ACL LOAD": (),
    "ACL DELUSER": ("drafter-x",),
    "SCAN": ("0",),
}


def test_the_administrator_may_run_every_command_of_the_runbooks(folder: Path, server: str) -> None:
    said = re.findall(r"`([A-Z]{3,}(?: [A-Z]+)?(?: maxmemory| \*)?)`", RUNBOOKS.read_text())
    commands = {words for words in said if words.split()[0] in {first.split()[0] for first in ARGUMENTS}}
    assert {"CONFIG SET maxmemory", "MEMORY USAGE", "SLOWLOG", "ACL LOAD"} <= commands
    with client(folder, "admin", server) as admin:
        for words in sorted(commands):
            admin.execute_command(*words.split(), *ARGUMENTS[words])
        assert admin.config_get("maxmemory") == {"maxmemory": str(100 << 20)}
    for service in set(access_rules.SERVICES) - {"admin"}:
        with client(folder, service, server) as one, pytest.raises(redis.exceptions.NoPermissionError):
            one.config_set("maxmemory", 1)
