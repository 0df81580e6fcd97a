"""`draftmesh launch`: starts a client so that it uses our gateway, or shows how.

It neither reads nor writes the user's own configuration: a client gets arguments, variables, and files below our cache
folder.
"""

import asyncio
import hashlib
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from services.launcher.clients.catalogue import CLIENTS, KEY_VARIABLE, NO_KEY, Client, ClientRecipe, Serving
from services.launcher.clients.serving import find
from shared.errors import StartError
from shared.folders import cache_folder

_END: Final = "END_OF_FILE"


def run(name: str, arguments: Sequence[str], *, url: str, key: str, model: str, show: bool) -> int:
    """Become the client, with `arguments` of its own, or with `show` print a shell script that would.

    Raises `StartError`.
    """
    client = CLIENTS.get(name)
    if client is None:
        raise StartError("client", name, f"one of {', '.join(CLIENTS)}")
    program = "" if show else _installed(name, client)
    serving = asyncio.run(find(url, key, model))
    recipe = client.recipe(serving, folder(name, serving))
    for note in notes(name, client, serving):
        sys.stderr.write(f"{note}\n")
    if not show:
        _become(program, serving, recipe, arguments)
    sys.stdout.write(script(client, serving, recipe, arguments))
    return 0


def _installed(name: str, client: Client) -> str:
    program = shutil.which(client.program)
    if program is None:
        raise StartError("client", name, f"'{client.program}' is not on PATH; {client.install} installs it")
    return program


def folder(name: str, serving: Serving) -> Path:
    """The folder of a client's files; each gateway and model has its own, so that starts do not disturb each other."""
    subject = f"{serving.url}\0{serving.model}\0{serving.n_ctx}"
    return cache_folder() / "launch" / f"{name}-{hashlib.sha256(subject.encode()).hexdigest()[:12]}"


def notes(name: str, client: Client, serving: Serving) -> list[str]:
    """What the user should know before the first answer."""
    lines = [f"{name} uses {serving.model} with {serving.n_ctx} tokens of context at {serving.url}"]
    if serving.n_ctx < client.opening:
        lines.append(
            f"warning: that is too small, since {name} opens with about {client.opening} tokens;"
            " draftmesh up --ctx makes it larger, up to what the model was trained for"
        )
    return lines


def script(client: Client, serving: Serving, recipe: ClientRecipe, arguments: Sequence[str]) -> str:
    """POSIX shell commands that do what `run` does; the key is taken from the environment, not shown."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in recipe.environment.items()]
    # The script expects the key in our variable.
    key = shlex.quote(NO_KEY) if serving.key == NO_KEY else f'"${KEY_VARIABLE}"'
    lines.append(f"export {recipe.key_variable}={key}")
    for path, content in recipe.files.items():
        quoted = shlex.quote(str(path))
        lines += [f"mkdir -p {shlex.quote(str(path.parent))}", f"cat > {quoted} <<'{_END}'", f"{content}{_END}"]
    lines.append(shlex.join([client.program, *recipe.arguments, *arguments]))
    return "\n".join(lines) + "\n"


def _become(program: str, serving: Serving, recipe: ClientRecipe, arguments: Sequence[str]) -> NoReturn:
    for path, content in recipe.files.items():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Renamed into place: another start of the same client may be reading it.
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        fresh.write_text(content)
        fresh.replace(path)
    sys.stdout.flush()
    sys.stderr.flush()
    # Signals, terminal and exit status are then the client's own.
    variables = {**os.environ, **recipe.environment, recipe.key_variable: serving.key}
    os.execve(program, (program, *recipe.arguments, *arguments), variables)
