"""Prebuilt backends of ggml that are kept in the user's data folder and loaded at run time.

`draftmesh backend add NAME` puts one into `backends/NAME/`, with the libraries that it needs beside it. A backend that
llama.cpp itself was built with is no plugin.
"""

import hashlib
from functools import cache
from pathlib import Path

import structlog

from shared.folders import cache_folder, data_folder
from shared.model.llama import library, loading, trial
from shared.model.rows import LlamaError

logger = structlog.get_logger()


def folder() -> Path:
    """The folder of added backends, one folder each."""
    return data_folder() / "backends"


def library_name(name: str) -> str:
    """The file name of the library of the backend `name`."""
    return f"libggml-{name}.so"


def installed() -> dict[str, Path]:
    """The library of each backend by its name, such as `vulkan`."""
    found = sorted(folder().glob("*/libggml-*.so"))
    return {path.parent.name: path for path in found if path.name == library_name(path.parent.name)}


@cache
def load(name: str) -> None:
    """Add the devices of the backend `name` to this process; later calls do nothing. Raises `LlamaError`.

    Tries it in a child first, unless the same files worked before, so that a damaged file or a new llama.cpp does not
    end this process.
    """
    path = installed().get(name)
    if path is None:
        raise LlamaError(f"there is no backend {name} in {folder()}; `draftmesh backend add {name}` fetches it")
    library.start()
    try:
        _try_and_load(name, path)
    except LlamaError as error:
        raise LlamaError(_refusal(name, str(error), isinstance(error, loading.NoDriver))) from None


def _try_and_load(name: str, path: Path) -> None:
    loading.check_driver(name)  # before what takes longer
    passed = cache_folder() / "backends" / f"{name}-{_identity(path)}"
    if not passed.exists():
        outcome = trial.attempt(path)
        if outcome.problem:
            raise (loading.NoDriver if outcome.no_driver else LlamaError)(outcome.problem)
        _note(passed)
    loading.load(path)


def _identity(path: Path) -> str:
    """A text that changes with the files of the backend and of llama.cpp."""
    own = library.path_of("ggml_backend_dev_name").parent
    digest = hashlib.sha256()
    for file in (*sorted(path.parent.iterdir()), *sorted(own.glob("lib*"))):
        status = file.stat()
        digest.update(f"{file} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _refusal(name: str, problem: str, no_driver: bool) -> str:
    """What is wrong with a backend, and the fix unless the problem names one."""
    command = "draftmesh backend"
    advice = f"; `{command} add {name}` fetches the one for this release, `{command} remove {name}` removes it"
    return f"the backend {name} {problem}{'' if no_driver else advice}"


def _note(passed: Path) -> None:
    """Remember that it worked; if that cannot be written, the next process tries it again."""
    try:
        passed.parent.mkdir(parents=True, exist_ok=True)
        passed.touch()
    except OSError as error:
        logger.debug("backend_trial_not_kept", reason=error.strerror)
