"""`draftmesh up`."""

import typer

from services.launcher.settings.up_options import UpOptions
from shared.settings.options_struct import declarations


def up(context: typer.Context, options: UpOptions) -> int:
    """Start everything on this machine: Valkey, gateway, verifier, drafters."""
    from services.launcher.fleet.up import run
    from services.launcher.settings.service_options import hand_down

    return run(options, hand_down(context.obj.file if context.obj else None, declarations(UpOptions)))
