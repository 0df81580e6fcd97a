"""What turns data into code is nowhere in what we run: no pickle, no eval, no shell, no unsafe loader."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILES = sorted(path for folder in ("shared", "services") for path in (ROOT / folder).rglob("*.py"))
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "code", "commands"}
CALLS = {"eval", "exec", "compile", "__import__", "execfile"}
# Methods by these names of modules that do the same, and numpy's own way to pickles.
METHODS = {
    ("os", "system"),
    ("os", "popen"),
    ("yaml", "load"),
    ("yaml", "unsafe_load"),
    ("numpy", "load"),
    ("np", "load"),
}
NAMED = {"allow_pickle", "shell"}


def dangers(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [str(node.module)]
            yield from (name for name in names if name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Name) and function.id in CALLS:
                yield function.id
            if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
                pair = (function.value.id, function.attr)
                if pair in METHODS:
                    yield ".".join(pair)
            for keyword in node.keywords:
                if keyword.arg in NAMED and not (isinstance(keyword.value, ast.Constant) and not keyword.value.value):
                    yield str(keyword.arg)


def test_no_file_turns_data_into_code() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in FILES} == {"shared", "services"}
    found = {str(path.relative_to(ROOT)): list(dangers(ast.parse(path.read_text()))) for path in FILES}
    assert not {path: names for path, names in found.items() if names}


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from pickle import loads", "eval(x)", "exec(x)", "os.system(x)", "np.load(f)",
     "subprocess.run(x, shell=True)", "np.array(f, allow_pickle=y)", "import os, marshal"],
)  # fmt: skip
def test_the_test_would_notice(source: str) -> None:
    assert list(dangers(ast.parse(source)))
