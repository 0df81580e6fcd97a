"""A walk through the documentation: every block that can be run is run against a real fleet."""

import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.docs.blocks import BLOCKS, Block
from tests.docs.fleet import Walker, walker

RUN = ("sh", "console", "python")
_MIN_REASON = 12  # characters: "needs a GPU" is none yet without saying for what


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walker]:
    with walker(tmp_path_factory.mktemp("fleet")) as running:
        yield running


def named(block: Block) -> str:
    return block.name


@pytest.mark.model
@pytest.mark.timeout(240)  # the first one starts the fleet
@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language in RUN and not block.reason], ids=named)
def test_a_documented_block_runs(block: Block, fleet: Walker, tmp_path: Path) -> None:
    if block.language == "python":
        fleet.run([sys.executable, "-"], block.text, tmp_path)
    else:
        fleet.run(["bash", "-euo", "pipefail", "-s"], "\n".join(block.commands()), tmp_path)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.reason], ids=named)
def test_a_block_that_is_not_run_says_why(block: Block) -> None:
    assert len(block.reason) >= _MIN_REASON
    assert block.language in RUN, "other blocks are checked, not run"


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language not in RUN], ids=named)
def test_documented_data_is_well_formed(block: Block) -> None:
    match block.language:
        case "json":
            json.loads(block.text)
        case "yaml":
            yaml.safe_load(block.text)
        case "toml":
            tomllib.loads(block.text)
