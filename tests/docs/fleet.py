"""The small fleet that documented commands run against: one `draftmesh up` on free ports with a shallow model."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.launcher.fleet.ports import claim_embedded
from shared.folders import cache_folder
from shared.model import model_source
from tests.docs.blocks import ROOT
from tests.patience import PROCESS_S
from tests.shallow import shallow

_START_S: Final = 150.0  # a busy machine that measures what rows cost for the first time
_RUN_S: Final = PROCESS_S
_SMALL: Final = ("--ctx", "1024", "--parallel", "2", "--threads", "1", "--exactness", "law")
# What stands on the PATH before everything else. Targets of make are only looked up: they install, measure or compile.
_STAND_INS: Final = {
    "draftmesh": '#!/bin/sh\nexec "{python}" -P -m services.launcher "$@"\n',
    "python3": '#!/bin/sh\nexec "{python}" "$@"\n',
    "make": '#!/bin/sh\nexec /usr/bin/make --dry-run --directory "{root}" "$@" > /dev/null\n',
    "curl": '#!/bin/sh\nexec /usr/bin/curl --fail-with-body --silent --show-error --max-time 30 "$@"\n',
}


@dataclass(frozen=True, slots=True)
class Walker:
    """Runs documented text against the fleet."""

    environment: dict[str, str]
    rewritten: dict[str, str]  # the only changes that documented text gets: ports and paths

    def rewrite(self, text: str) -> str:
        """`text` for this fleet and this checkout."""
        for old, new in self.rewritten.items():
            text = text.replace(old, new)
        return text

    def run(self, command: list[str], text: str, folder: Path) -> str:
        """Feed `text` to `command` in `folder`; what it printed. Raises `AssertionError` if it fails."""
        done = subprocess.run(
            command,
            input=self.rewrite(text),
            cwd=folder,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_RUN_S,
        )
        assert done.returncode == 0, f"exit status {done.returncode}:\n{done.stdout}"
        return done.stdout


@contextmanager
def walker(folder: Path) -> Iterator[Walker]:
    """A running fleet whose files are all below `folder`; it is gone at the end."""
    tools = folder / "bin"
    tools.mkdir()
    for name, script in _STAND_INS.items():
        (tools / name).write_text(script.format(python=sys.executable, root=ROOT))
        (tools / name).chmod(0o755)
    gateway, redis = claim_embedded(0), claim_embedded(0)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DRAFTMESH_")}
    environment |= {
        "PATH": f"{tools}:{environment['PATH']}",
        "PYTHONPATH": str(ROOT),
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "DRAFTMESH_CACHE": str(cache_folder()),  # what rows cost here need not be measured again
    }
    rewritten = {".venv/bin/": "", "127.0.0.1:7071": f"127.0.0.1:{gateway}", "127.0.0.1:7072": f"127.0.0.1:{redis}"}
    log = folder / "up.log"
    model = shallow(model_source.resolve("default"), layers=6)
    words = [str(tools / "draftmesh"), "up", "--port", str(gateway), "--redis-port", str(redis), "--redis", ""]
    words += ["--target-model", str(model), *_SMALL]
    with log.open("wb") as output:
        up = subprocess.Popen(words, env=environment, stdout=output, stderr=output)
    try:
        _wait(up, f"http://127.0.0.1:{gateway}/ready", log)
        yield Walker(environment, rewritten)
    finally:
        up.send_signal(signal.SIGINT)
        try:
            up.wait(timeout=30)
        except subprocess.TimeoutExpired:
            up.kill()
            up.wait()


def _wait(up: subprocess.Popen[bytes], url: str, log: Path) -> None:
    limit = time.monotonic() + _START_S
    while time.monotonic() < limit:
        assert up.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise AssertionError(f"not ready within {_START_S:.0f} s:\n{log.read_text()}")
