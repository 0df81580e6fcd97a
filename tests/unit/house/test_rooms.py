"""The rules of the house: which room imports which, who touches native libraries and HTTP, and that no circle exists.

Rooms are packages. Each list below names rooms from the lowest to the highest; a room imports only lower ones. A rule
that names a room or a module which is gone fails.
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

import shared

ROOT: Final = Path(__file__).parents[3]
SERVICES: Final = ("gateway", "verifier", "drafter", "launcher")
ROOMS: Final = {
    "shared": ("errors", "folders", "lossy", "machine", "wire", "law", "model", "fleet", "settings", "process"),
    "services.gateway": (
        *("errors", "requests", "storage", "prompts", "formats", "models", "generation", "monitoring", "http"),
        *("dialects", "views", "page", "table", "app", "service", "__main__"),
    ),
    "services.launcher": (
        *("display", "settings", "facts", "models", "backends", "forecast", "fleet", "look", "clients", "bench"),
        *("commands", "cli", "__main__"),
    ),
}
SPEAK_HTTP: Final = ("http", "dialects", "views", "page", "app", "service")  # rooms that may import aiohttp
# Packages of native code, and the only modules or rooms that import them.
OWNERS: Final = {"llama_cpp": "shared.model.llama", "llguidance": "shared.law.grammar"}
# These compute: what they import is the standard library, numpy, msgspec and each other.
PURE: Final = (
    *("shared.errors", "shared.wire.messages", "shared.fleet.fleet_values", "shared.fleet.verdict"),
    *("shared.fleet.describe", "shared.fleet.measured", "shared.law.payoff"),
    *("shared.fleet.model_names", "shared.law.acceptance", "shared.law.prefix", "shared.law.sampling"),
    *("shared.law.draws", "shared.law.history", "shared.law.native"),
    *("shared.law.speedup", "shared.machine.devices", "shared.model.rows", "shared.model.safe_cuts"),
    *(
        "shared.model.vocabulary",
        "shared.model.tensor_types",
        "shared.model.memory",
        "shared.model.gguf_header",
        "shared.model.prefix_index",
        "shared.model.model_sizes",
    ),
    *("shared.model.purpose", "shared.model.offload", "shared.machine.threads", "shared.machine.signals"),
    "shared.fleet.neighbours",
    *(
        f"services.verifier.{name}"
        for name in (
            "trie",
            "walk",
            "tree",
            "scheduler",
            "pieces",
            "counters",
            "contributions",
            "speed",
            "thinking",
            "turns",
        )
    ),
    *(
        f"services.drafter.{name}"
        for name in ("suffix", "votes", "copier", "store", "draft_tree", "proposer", "extension")
    ),
    "services.gateway.generation.text",
    "services.gateway.generation.draft_statistics",
    *(
        f"services.launcher.bench.{name}"
        for name in ("prompts", "edits", "agents", "workloads", "plan", "samples", "acceptance", "summary")
    ),
)


def _module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES: Final = {
    _module_name(path): path for folder in ("shared", "services") for path in (ROOT / folder).rglob("*.py")
}


@cache
def _imports(module: str) -> set[str]:
    """Full names of what `module` imports, wherever in the file; of our own modules, the module."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} uses a relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                names.add(full if full in MODULES else str(node.module))
    return names


def _all_imports() -> Iterator[tuple[str, set[str]]]:
    """Each module, and what it imports."""
    for module in MODULES:
        yield module, _imports(module)


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _own(modules: set[str]) -> set[str]:
    return {name for name in modules if name.partition(".")[0] in ("shared", "services")}


def _rooms_imported(base: str) -> Iterator[tuple[str, str, str]]:
    """(module, its room, another room that it imports) below `base`."""
    for module, names in _all_imports():
        if not module.startswith(f"{base}."):
            continue
        room = module.removeprefix(f"{base}.").partition(".")[0]
        for name in names:
            if name.startswith(f"{base}."):
                other = name.removeprefix(f"{base}.").partition(".")[0]
                if other != room:
                    yield module, room, other


def test_shared_imports_no_service() -> None:
    assert not [
        (module, name)
        for module in MODULES
        if _within(module, "shared")
        for name in _imports(module)
        if _within(name, "services")
    ]


def test_a_service_imports_only_shared_and_itself() -> None:
    foreign = []
    for service in SERVICES:
        own = f"services.{service}"
        modules = [module for module in MODULES if _within(module, own)]
        assert modules
        foreign += [
            (module, name)
            for module in modules
            for name in _own(_imports(module))
            if not _within(name, own) and not _within(name, "shared")
        ]
    assert not foreign


@pytest.mark.parametrize("base", ROOMS)
def test_a_room_imports_only_rooms_below_it(base: str) -> None:
    order = ROOMS[base]
    for room in order:
        assert f"{base}.{room}" in MODULES, f"the rule names {base}.{room}, which is gone"
    found = {module.removeprefix(f"{base}.").partition(".")[0] for module in MODULES if module.startswith(f"{base}.")}
    assert found == set(order), "every room has its place in the order"
    assert not [
        f"{module} imports {other}"
        for module, room, other in _rooms_imported(base)
        if order.index(other) >= order.index(room)
    ]


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {module: _own(names) & MODULES.keys() - {module} for module, names in _all_imports()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_every_room_says_what_lives_there() -> None:
    for base, order in ROOMS.items():
        for room in order:
            path = MODULES[f"{base}.{room}"]
            if path.name == "__init__.py":
                text = ast.get_docstring(ast.parse(path.read_text()))
                assert text, f"{path} says nothing"


def test_a_pure_module_imports_only_numpy_msgspec_and_the_pure() -> None:
    allowed = {*sys.stdlib_module_names, "numpy", "msgspec"}
    for module in PURE:
        assert module in MODULES, f"the rule names {module}, which is gone"
        impure = {name for name in _imports(module) if name.partition(".")[0] not in allowed and name not in PURE}
        assert not impure, f"{module} imports {impure}"


@pytest.mark.parametrize(("package", "owner"), OWNERS.items())
def test_only_its_owner_touches_a_native_library(package: str, owner: str) -> None:
    users = {module for module, names in _all_imports() if any(_within(name, package) for name in names)}
    assert users
    assert not {module for module in users if not _within(module, owner)}


def test_only_rooms_that_speak_http_import_aiohttp() -> None:
    base = "services.gateway"
    users = {module for module, names in _all_imports() if any(_within(name, "aiohttp") for name in names)}
    rooms = {module.removeprefix(f"{base}.").partition(".")[0] for module in users if _within(module, base)}
    assert rooms == set(SPEAK_HTTP)


def test_the_shared_that_is_imported_is_ours() -> None:
    assert Path(shared.__file__).resolve().is_relative_to(ROOT)
