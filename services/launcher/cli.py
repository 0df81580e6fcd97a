"""The `draftmesh` command: a wrong command line gives one line and exit status 2, never a traceback."""

from importlib import metadata
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from services.launcher.commands.access import acl, keys
from services.launcher.commands.backend import backend
from services.launcher.commands.bench import bench, compare
from services.launcher.commands.client import demo, launch
from services.launcher.commands.fleet import drafter, gateway, invite, join, service, up, verifier
from services.launcher.commands.forecast import doctor, plan, setup
from services.launcher.commands.look import config, logs, ps, status, top
from services.launcher.commands.models import models, pull
from services.launcher.settings import service_options
from shared.process.logs import configure
from shared.settings import command_line, command_settings, options
from shared.settings.options_struct import flat


class _TwoWords(TyperGroup):
    """A group that also finds commands of two words, so that `bench` and `bench compare` are two commands."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        words = " ".join(args[:2])
        return super().resolve_command(ctx, [words, *args[2:]] if words in self.commands else args)


app = typer.Typer(
    cls=_TwoWords,
    name="draftmesh",
    help="Makes a big model answer faster by letting every spare device guess ahead for it, exactly.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_PASS_ON: Final = {"allow_extra_args": True, "ignore_unknown_options": True}


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"draftmesh {metadata.version('draftmesh')}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


# In the order in which `--help` lists them.
app.command()(flat(setup))
app.command()(flat(up))
for process in (gateway, verifier, drafter):
    app.command(context_settings=_PASS_ON, add_help_option=False)(process)
for command in (join, pull, status, ps, top, logs, doctor, plan, demo, bench, launch):
    app.command()(flat(command))
app.command("bench compare")(compare)
app.add_typer(models, name="models")
app.add_typer(backend, name="backend")
app.add_typer(keys, name="keys")
app.add_typer(config, name="config")
app.add_typer(service, name="service")
app.command()(invite)
app.command()(acl)


def main() -> None:
    """The console script: runs the command and exits with its status."""
    configure(command_settings.PROGRAM, options.Level.WARNING, cached=False)
    command_line.run(app, command_settings.PROGRAM, service_options.KEYS)
