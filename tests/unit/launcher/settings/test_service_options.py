"""What a file says to the services: known here by name, refused by them, and handed down by `up`."""

from pathlib import Path

import pytest

from services.launcher.settings.service_options import KEYS, Handed, hand_down
from shared.errors import StartError
from shared.settings import command_settings, settings_file
from tests import command_lines


def write(folder: Path, text: str) -> Path:
    file = folder / settings_file.NAME
    file.write_text(text)
    file.chmod(0o600)
    return file


@pytest.mark.parametrize("service", command_lines.SERVICES)
def test_the_launcher_knows_every_option_of_a_service_and_its_twin(service: str) -> None:
    """A name that is missing here would be an error in the file; one without twin would be lost under `up`."""
    options = command_settings.keys(command_lines.parser(service))
    assert set(options) == set(KEYS[service,])
    assert {key: option.envvar for key, option in options.items()} == {
        key: f"DRAFTMESH_{key.upper()}" for key in options
    }


def test_a_service_refuses_what_it_does_not_know_and_leaves_other_commands_alone(tmp_path: Path) -> None:
    file = settings_file.read(write(tmp_path, "lease = 5\n[gateway]\nmax_requests = 7\n[up]\nprot = 1"))
    file.check_own(("gateway",), KEYS["gateway",])
    wrong = settings_file.read(write(tmp_path, "[gateway]\nmax_request = 7"))
    with pytest.raises(StartError, match=r":2: max_request: gateway has no such option; did you mean max_requests\?"):
        wrong.check_own(("gateway",), KEYS["gateway",])


def test_up_hands_down_what_is_not_its_own_to_say(tmp_path: Path) -> None:
    text = """
gpu_layers = 20
lease = 5
[gateway]
port = 9
api_key = ["a", "b"]
no_auth = true
[drafter]
name = "spare"
"""
    file = write(tmp_path, text)
    handed = hand_down(settings_file.read(file), {"port", "gpu_layers", "no_auth"})
    assert handed.twins == {
        "gateway": {"DRAFTMESH_API_KEY": "a b"},
        "verifier": {"DRAFTMESH_LEASE": "5"},
        "drafter": {"DRAFTMESH_NAME": "spare"},
    }
    assert handed.notes == (
        f"{file}:5: port of [gateway] is not used: `up` sets it",
        f"{file}:7: no_auth of [gateway] is not used: `up` sets it",
    )
    assert hand_down(None, ()) == Handed()


def test_a_list_that_no_variable_can_hold_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, '[gateway]\napi_key = ["a b"]')
    with pytest.raises(StartError, match=":2: api_key: up can hand on only parts without spaces"):
        hand_down(settings_file.read(file), ())
