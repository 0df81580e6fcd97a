"""How llama.cpp gets here: what is compiled, when a wheel is taken again, and what is said when it cannot be."""

import io
import platform
import shutil
import subprocess
import sys
import zipfile
from collections import namedtuple
from pathlib import Path

import pytest

from install import compiling, llama
from install.compiling import BuildProgress, Refusal, reason
from install.llama import BuildRecipe, missing_variants, recipe

CONSTRAINTS = "aiohttp==3.14.5\nllama_cpp_python==1.2.3\nllm==0.36\n"
LOG = Path("build.log")
Usage = namedtuple("Usage", "total used free")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment of Python without llama.cpp, and a pip that keeps its cache beside it."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    monkeypatch.setattr(llama, "_constraints", lambda: tmp_path / "constraints.txt")
    monkeypatch.setattr(llama, "compiler", lambda: "c++ 12")
    (tmp_path / "constraints.txt").write_text(CONSTRAINTS)
    return tmp_path


class Installs:
    """What would be installed: wheels compiled and wheels put in place."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, installed: str, cached: Path | None = None) -> None:
        self.compiled: list[BuildRecipe] = []
        self.placed: list[tuple[str, str]] = []
        monkeypatch.setattr(llama, "_installed", lambda: installed)
        monkeypatch.setattr(llama, "_cached_by_pip", lambda version: cached)
        monkeypatch.setattr(llama, "_install", lambda file, origin: self.placed.append((file.name, origin)))
        monkeypatch.setattr(llama, "wheel", self._wheel)

    def _wheel(self, ours: BuildRecipe, portable: bool, anew: bool) -> Path:
        self.compiled.append(ours)
        return Path("fresh.whl")


def made(
    portable: bool = False, given: str = "", compiler: str = "c++ 12", constraints: str = CONSTRAINTS
) -> BuildRecipe:
    return recipe(constraints, portable, given, compiler)


def test_a_native_build_is_for_this_processor_and_a_portable_one_for_any(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "-DGGML_CPU_ALL_VARIANTS=ON" in made(portable=True).arguments
    assert "-DGGML_NATIVE=OFF" not in made().arguments
    before = [made(portable).key() for portable in (False, True)]
    monkeypatch.setattr(llama, "processor", lambda: "another one")
    after = [made(portable).key() for portable in (False, True)]
    assert [one == other for one, other in zip(before, after, strict=True)] == [False, True]


def test_whatever_changes_the_wheel_changes_its_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keys = {
        made().key(),
        made(portable=True).key(),
        made(given="-DGGML_CUDA=ON").key(),
        made(compiler="c++ 13").key(),
        made(constraints=CONSTRAINTS.replace("1.2.3", "1.2.4")).key(),
    }
    assert len(keys) == 5
    for name in ("llama.cmake", "amx_tile_config.h"):
        (tmp_path / name).write_text("another")
    monkeypatch.setattr(llama, "HERE", tmp_path)
    assert made().key() not in keys


def test_where_the_repository_lies_does_not_change_the_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = made().key()
    for name in ("llama.cmake", "amx_tile_config.h"):
        shutil.copy(llama.HERE / name, tmp_path / name)
    monkeypatch.setattr(llama, "_COMMON", tuple(one.replace(str(llama.HERE), str(tmp_path)) for one in llama._COMMON))
    monkeypatch.setattr(llama, "HERE", tmp_path)
    assert made().key() == before


def test_the_users_arguments_come_last_so_that_they_win() -> None:
    assert made(given='-DLLAVA_BUILD=ON -DX="a b"').arguments[-2:] == ("-DLLAVA_BUILD=ON", "-DX=a b")


def test_a_version_that_is_not_named_is_refused() -> None:
    with pytest.raises(Refusal, match="names no version"):
        made(constraints="llm==0.36\n")


@pytest.mark.usefixtures("environment")
def test_what_is_installed_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    installs = Installs(monkeypatch, "1.2.3", cached=Path("old.whl"))
    llama.install(portable=False, anew=False)
    assert (installs.compiled, installs.placed) == ([], [])


@pytest.mark.usefixtures("environment")
def test_a_wheel_that_pip_has_already_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    installs = Installs(monkeypatch, "", cached=Path("old.whl"))
    llama.install(portable=False, anew=False)
    assert (installs.compiled, installs.placed) == ([], [("old.whl", "pip")])


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(("portable", "anew", "given"), [(True, False, ""), (False, True, ""), (False, False, "-DX=1")])
def test_it_is_compiled_where_pips_wheel_is_not_what_is_wanted(
    portable: bool, anew: bool, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CMAKE_ARGS", given)
    installs = Installs(monkeypatch, "", cached=Path("old.whl"))
    llama.install(portable, anew)
    wanted = made(portable, given)
    assert (installs.compiled, installs.placed) == ([wanted], [("fresh.whl", wanted.key())])


def test_another_version_and_other_arguments_replace_what_is_installed(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installs = Installs(monkeypatch, "1.2.2")
    llama.install(portable=False, anew=False)
    (environment / ".llama-origin").write_text(made().key())
    monkeypatch.setattr(llama, "_installed", lambda: "1.2.3")
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_CUDA=ON")
    llama.install(portable=False, anew=False)
    (environment / ".llama-origin").write_text(made(given="-DGGML_CUDA=ON").key())
    llama.install(portable=False, anew=False)
    assert [one.arguments[-1] for one in installs.compiled] == ["-DLLAVA_BUILD=OFF", "-DGGML_CUDA=ON"]


@pytest.mark.parametrize(
    ("origin", "statuses", "compiled"),
    [
        ("pip", [0], 0),
        ("pip", [3, 0], 1),
        ("pip", [1, 3], 1),
        ("0123", [3], 0),
    ],
)
def test_a_wheel_of_unknown_making_that_fails_its_test_is_compiled_anew(
    origin: str, statuses: list[int], compiled: int, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (environment / ".llama-origin").write_text(origin)
    installs = Installs(monkeypatch, "1.2.3", cached=Path("old.whl"))
    left = iter(statuses)
    monkeypatch.setattr(llama, "_self_test", lambda: next(left))
    llama.check()
    assert (len(installs.compiled), list(left)) == (compiled, [])


@pytest.mark.parametrize("statuses", [[1], [-4]])
def test_one_that_does_not_work_at_all_ends_the_install(
    statuses: list[int], environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (environment / ".llama-origin").write_text("0123")
    left = iter(statuses)
    monkeypatch.setattr(llama, "_self_test", lambda: next(left))
    with pytest.raises(Refusal, match="does not work here"):
        llama.check()


@pytest.fixture
def cache(environment: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(llama, "_cache", lambda: environment / "cache")
    return environment / "cache"


def fake_build(monkeypatch: pytest.MonkeyPatch, *names: str) -> list[str]:
    """Builds a wheel of empty files, and notes what was asked for."""
    asked: list[str] = []

    def build(requirements: Path, arguments: str, folder: Path) -> Path:
        asked.append(requirements.name)
        with zipfile.ZipFile(folder / "llama_cpp_python-1.2.3-py3-none-any.whl", "w") as archive:
            for name in names:
                archive.writestr(name, name)
        return folder / "llama_cpp_python-1.2.3-py3-none-any.whl"

    monkeypatch.setattr(llama, "compile_wheel", build)
    return asked


def test_a_wheel_is_compiled_once_and_said_to_take_long(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = fake_build(monkeypatch, "llama_cpp/lib/libllama.so")
    first = llama.wheel(made(), portable=False, anew=False)
    assert llama.wheel(made(), portable=False, anew=False) == first
    assert asked == ["llama.txt"]
    assert first.parent.parent == cache
    [said] = capsys.readouterr().out.splitlines()
    assert said.startswith("compiling llama.cpp for this processor: about 4 minutes on two cores, once;")
    llama.wheel(made(), portable=False, anew=True)
    assert len(asked) == 2


def test_a_build_that_lacks_a_processor_is_refused_and_not_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    fake_build(monkeypatch, *(f"llama_cpp/lib/libggml-cpu-{name}.so" for name in llama.VARIANTS["x86_64"][:-1]))
    with pytest.raises(Refusal, match="no code for sapphirerapids; is the compiler too old"):
        llama.wheel(made(portable=True), portable=True, anew=False)
    assert list(cache.rglob("*.whl")) == []


@pytest.mark.parametrize(("machine", "weakest"), [("x86_64", "x64"), ("arm64", "armv8.0_1")])
def test_every_known_processor_is_wanted(machine: str, weakest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert missing_variants([])[0] == weakest
    assert missing_variants([f"llama_cpp/lib/libggml-cpu-{name}.so" for name in missing_variants([])]) == []


def test_only_the_libraries_are_unpacked(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_build(monkeypatch, "llama_cpp/lib/libllama.so", "llama_cpp/llama.py", "llama_cpp/lib/libggml.so.0")
    (tmp_path / "libraries").mkdir()
    (tmp_path / "libraries" / "old.so").touch()
    llama.unpack(llama.wheel(made(), portable=False, anew=False), tmp_path / "libraries")
    assert sorted(file.name for file in (tmp_path / "libraries").iterdir()) == ["libggml.so.0", "libllama.so"]


def test_pips_wheel_of_the_wanted_version_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"/c/llama_cpp_python-{version}-py3-none-linux_x86_64.whl" for version in ("1.2.30", "1.2.3")]
    monkeypatch.setattr(llama, "_pip", lambda command: [sys.executable, "-S", "-c", f"print({chr(10).join(lines)!r})"])
    found = llama._cached_by_pip("1.2.3")
    assert found is not None
    assert found.name == "llama_cpp_python-1.2.3-py3-none-linux_x86_64.whl"
    assert llama._cached_by_pip("1.2") is None


def test_without_a_compiler_the_package_that_brings_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    with pytest.raises(Refusal, match=r"no-such-compiler, which CXX names, is not there; .* build-essential"):
        llama.compiler()
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Refusal, match=r"there is no C\+\+ compiler; .* build-essential"):
        llama.compiler()


def test_a_disk_without_room_is_refused_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1, 1, 300_000_000))
    with pytest.raises(Refusal, match=r"needs 1 GB in .*, and 0\.3 are free; make room, or .* TMPDIR"):
        compiling.compile_wheel(llama.HERE / "llama.txt", "", tmp_path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[3/9] cc\nfatal error: x.o: No space left on device\n", "the disk is full; make room"),
        ("CMake Error: No CMAKE_CXX_COMPILER could be found.", "there is no C or C++ compiler"),
        ("c++: fatal error: Killed signal terminated program cc1plus", "memory ran out"),
        ("ERROR: No matching distribution found for llama_cpp_python", "is the network up?"),
        ("[1/9] cc\na.cpp:3: error: no such type\nb.cpp:4: error: other\n", "a.cpp:3: error: no such type"),
        ("", "the log says why"),
    ],
)
def test_a_failed_build_is_one_sentence_with_its_log(text: str, sentence: str) -> None:
    said = reason(text, LOG)
    assert sentence in said
    assert said.startswith("llama.cpp was not compiled: ")
    assert said.endswith("(build.log)")


def test_progress_goes_on_in_place_on_a_terminal_and_in_few_lines_elsewhere() -> None:
    steps = [f"  [{step}/200] c++ -o x\n" for step in range(1, 201)]
    terminal, file = Terminal(), io.StringIO()
    for out in (terminal, file):
        progress = BuildProgress(out)
        for line in ("Collecting llama_cpp_python\n", *steps):
            progress(line)
        progress.end()
    assert terminal.getvalue().startswith("\rcompiling llama.cpp: 0 %\rcompiling llama.cpp: 1 %")
    assert terminal.getvalue().endswith("\rcompiling llama.cpp: 100 %\n")
    assert file.getvalue().splitlines() == [f"compiling llama.cpp: {percent} %" for percent in range(0, 101, 10)]


def test_progress_reads_make_too() -> None:
    out = io.StringIO()
    progress = BuildProgress(out)
    for line in ("[  5%] Building C object\n", "[ 50%] Building CXX object\n"):
        progress(line)
    assert out.getvalue().splitlines() == ["compiling llama.cpp: 5 %", "compiling llama.cpp: 50 %"]


SOURCE = """
#include <immintrin.h>
#include <string.h>
struct Config { unsigned char palette, start, reserved[14]; unsigned short width[16]; unsigned char rows[16]; };
void configure() {
    Config config;
    memset(&config, 0, sizeof config);
    config.palette = 1;
    config.rows[0] = 77;
    _tile_loadconfig(&config);
}
"""


@pytest.mark.skipif(
    platform.machine() != "x86_64" or not shutil.which("g++"), reason="AMX is x86's, and the header is for gcc"
)
def test_gcc_keeps_what_is_written_into_the_tile_configuration(tmp_path: Path) -> None:
    """gcc 12 leaves these stores out without the header, and ggml's first matrix product then dies."""
    source = tmp_path / "configure.cpp"
    source.write_text(SOURCE)
    header = llama.HERE / "amx_tile_config.h"
    done = subprocess.run(
        ["g++", "-O3", "-mamx-tile", "-include", str(header), "-S", "-o", "-", str(source)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "$77" in done.stdout.partition("ldtilecfg")[0]
