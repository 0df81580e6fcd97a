"""`draftmesh` with a catalogue of the tests': the variable `STUB_CATALOGUE` says as JSON what can be added."""

import os

import msgspec

from services.launcher import cli
from services.launcher.backends import catalogue

VARIABLE = "STUB_CATALOGUE"


def main() -> None:
    """Run the command line."""
    backends = msgspec.json.decode(os.environ[VARIABLE], type=tuple[catalogue.Prebuilt, ...])
    catalogue.PREBUILT = {catalogue.this_system(): backends}  # type: ignore[misc]
    cli.main()


if __name__ == "__main__":
    main()
