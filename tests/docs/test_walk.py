"""A walk through the documentation: every block that can be run is run against a real fleet."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from reference.command_lines import service
from services.launcher.cli import app
from services.launcher.settings import service_options
from shared.settings import settings_file
from shared.settings.command_settings import PROGRAM, CommandSettings
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
@pytest.mark.timeout(600)  # the first one starts the fleet
@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language in RUN and not block.reason], ids=named)
def test_a_documented_block_runs(block: Block, fleet: Walker, tmp_path: Path) -> None:
    if "| jq" in block.text and not shutil.which("jq"):
        pytest.skip("jq is not installed")
    if block.language == "python":
        fleet.run([sys.executable, "-"], block.text, tmp_path)
    else:
        fleet.run(["bash", "-euo", "pipefail", "-s"], "\n".join(block.commands()), tmp_path)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.reason], ids=named)
def test_a_block_that_is_not_run_says_why(block: Block) -> None:
    assert len(block.reason) >= _MIN_REASON
    assert block.language in RUN, "other blocks are checked, not run"


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language not in RUN], ids=named)
def test_documented_data_is_well_formed(block: Block, tmp_path: Path) -> None:
    match block.language:
        case "json":
            json.loads(block.text)
        case "yaml":
            yaml.safe_load(block.text)
        case "toml":
            file = tmp_path / settings_file.NAME
            file.write_text(block.text)
            file.chmod(0o600)
            check(settings_file.read(file))


def check(file: settings_file.ConfigFile) -> None:
    """As `draftmesh config check`: every key is known, and every value allowed. Raises what that says."""
    given = (settings_file.OPTION, str(file.path))
    launcher = CommandSettings(get_command(app), PROGRAM, service_options.KEYS)
    launcher.attach()
    for command in launcher.known():
        settings = launcher
        if command in service_options.KEYS:
            settings = CommandSettings(service(command[0]), " ".join((PROGRAM, *command)))
            settings.attach()
        settings.effective(command, given)


def test_a_setting_that_does_not_exist_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / settings_file.NAME
    for text, wrong in (('target_modle = "x"', "target_modle"), ("[gateway]\nport = 99999999", "65535")):
        file.write_text(text)
        with pytest.raises(Exception, match=wrong):
            check(settings_file.read(file))
