"""The build for any processor, as images have it: code for each kind, of which this machine's is picked by itself."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from install.llama import LIBRARIES, VARIANTS, missing_variants
from shared.model.llama.self_test import SelfTestOutcome, State, run

ROOT: Final = Path(__file__).parents[3]
FOLDER: Final = ROOT / ".cache" / "portable"
REQUIRED: Final = "DRAFTMESH_TEST_PORTABLE"  # set: the build must be there
USUAL: Final = (0, 1, 2, 8, 12, 14)  # F32, F16, Q4_0, Q8_0, Q4_K, Q6_K in ggml.h

# What this processor has been given, as ggml scores each variant here: none for instructions that it lacks.
PICKED = """
import ctypes, json, sys
from pathlib import Path
from shared.model.llama import library
library.start()
scores = {}
loaded = {line.split()[-1] for line in open("/proc/self/maps") if "libggml-cpu-" in line}
for file in sorted(library.folder().glob("libggml-cpu-*.so")):
    scores[file.stem.removeprefix("libggml-cpu-")] = ctypes.CDLL(str(file)).ggml_backend_score()
print(json.dumps({"loaded": [Path(file).stem.removeprefix("libggml-cpu-") for file in loaded], "scores": scores}))
"""


@pytest.fixture
def portable(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the build, which processes started by the test use."""
    if not FOLDER.is_dir():
        message = "no portable build here; `make portable` compiles it"
        pytest.fail(message) if REQUIRED in os.environ else pytest.skip(message)
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(FOLDER))
    return FOLDER


def test_it_has_code_for_every_processor_from_the_weakest_to_the_strongest(portable: Path) -> None:
    names = [f"{LIBRARIES}{file.name}" for file in portable.iterdir()]
    assert missing_variants(names) == []
    if platform.machine() == "x86_64":
        assert {"x64", "haswell", "sapphirerapids"} <= set(VARIANTS["x86_64"])


@pytest.mark.usefixtures("portable")
def test_it_passes_the_self_test() -> None:
    assert run(USUAL) == SelfTestOutcome(State.PASSED)


@pytest.mark.usefixtures("portable")
@pytest.mark.skipif(sys.platform != "linux", reason="reads what is loaded from /proc")
def test_the_best_code_for_this_processor_is_the_one_that_is_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", PICKED], cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    scores: dict[str, int] = found["scores"]
    [loaded] = found["loaded"]
    assert scores[loaded] == max(scores.values())
    if "avx2" in Path("/proc/cpuinfo").read_text().split():
        assert scores[loaded] >= scores["haswell"] > scores["sandybridge"] > 0
