"""The import rule: services know `shared` and themselves, `shared` knows no service, pure modules know neither I/O."""

import ast
import sys
from pathlib import Path

import pytest

import shared

ROOT = Path(__file__).parents[2]
OWNERS = (("llama_cpp", "shared.llama"), ("llguidance", "shared.grammar"))
SERVICES = ("gateway", "verifier", "drafter", "launcher")
PURE = (
    *(
        f"shared.{name}"
        for name in (
            "acceptance",
            "marks",
            "prefix",
            "speedup",
            "sampling",
            "messages",
            "vocabulary",
            "devices",
            "errors",
            "rows",
            "fleet",
            "verdict",
            "names",
            "memory",
            "gguf_header",
            "model_sizes",
            "purpose",
        )
    ),
    *(
        f"services.verifier.{name}"
        for name in ("trie", "walk", "tree", "scheduler", "pieces", "counters", "contributions", "speed", "thinking")
    ),
    *(
        f"services.drafter.{name}"
        for name in ("suffix", "votes", "copier", "store", "draft_tree", "proposer", "extension")
    ),
    *(f"services.gateway.{name}" for name in ("text", "stats")),
    *(
        f"services.launcher.bench.{name}"
        for name in ("prompts", "edits", "agents", "workloads", "plan", "samples", "acceptance", "summary")
    ),
)


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for folder in ("shared", "services") for path in (ROOT / folder).rglob("*.py")}


def imports(module: str) -> set[str]:
    """Full names of the modules that `module` imports, wherever in the file; `from a import b` gives a and a.b."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} uses a relative import"
            names |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in names if name.partition(".")[0] not in ("shared", "services") or name in MODULES}


@pytest.mark.parametrize("module", sorted(name for name in MODULES if name.startswith("shared")))
def test_shared_imports_no_service(module: str) -> None:
    assert not {name for name in imports(module) if name.startswith("services")}


@pytest.mark.parametrize("module", sorted(name for name in MODULES if name.count(".") > 1))
def test_a_service_imports_only_shared_and_itself(module: str) -> None:
    own = ".".join(module.split(".")[:2])
    foreign = {
        name
        for name in imports(module)
        if name.startswith("services.") and name != own and not name.startswith(f"{own}.")
    }
    assert not foreign


@pytest.mark.parametrize("module", [name for name in PURE if name in MODULES])
def test_a_pure_module_imports_only_numpy_msgspec_and_the_pure(module: str) -> None:
    allowed = {*sys.stdlib_module_names, "numpy", "msgspec"}
    packages = {"shared", "services", *(f"services.{service}" for service in SERVICES), "services.launcher.bench"}
    impure = {
        name
        for name in imports(module)
        if name.partition(".")[0] not in allowed and name not in packages and name not in PURE
    }
    assert not impure


@pytest.mark.parametrize(("package", "owner"), OWNERS)
@pytest.mark.parametrize("module", sorted(MODULES))
def test_only_its_owner_touches_a_native_library(module: str, package: str, owner: str) -> None:
    touches = any(name.partition(".")[0] == package for name in imports(module))
    assert not touches or module == owner or module.startswith(f"{owner}.")


@pytest.mark.parametrize(("package", "owner"), OWNERS)
def test_the_owner_of_a_native_library_uses_it(package: str, owner: str) -> None:
    modules = [name for name in MODULES if name == owner or name.startswith(f"{owner}.")]
    assert any(name.partition(".")[0] == package for module in modules for name in imports(module))


def test_the_shared_that_is_imported_is_ours() -> None:
    assert Path(shared.__file__).resolve().is_relative_to(ROOT)


@pytest.mark.parametrize("package", ["shared", "services", *(f"services.{service}" for service in SERVICES)])
def test_every_package_is_a_regular_one(package: str) -> None:
    assert package in MODULES


@pytest.mark.parametrize("module", sorted(MODULES))
def test_backends_are_reached_through_their_doors(module: str) -> None:
    package = "services.launcher.backends"
    inner = {name for name in imports(module) if name.startswith(f"{package}.")}
    assert module.startswith(package) or inner <= {f"{package}.command", f"{package}.hint"}
