"""The page of commands: what each takes and how it ends."""

from inspect import cleandoc

from reference.command_lines import Parameter, Parser, allowed, arguments, commands, default, options
from reference.markdown import code, page, table
from shared.settings.command_line import BAD_OPTION, INTERRUPTED
from shared.settings.command_settings import PROGRAM

_STATUSES = (
    (0, "it did what it was asked for"),
    (1, "it failed, or found nothing: the last line on standard error says what"),
    (BAD_OPTION, "an option, a variable or a setting is wrong: one line names it, its value and what is allowed"),
    (INTERRUPTED, "Ctrl-C ended it"),
)


def text() -> str:
    """The page."""
    found = commands()
    sections = [_section(name, parser) for name, parser in found.items()]
    return page(
        "Commands",
        "Every option with a variable may also be given in the environment. `--help` says the same on the terminal.",
        "## Exit statuses",
        table(("status", "meaning"), ((str(status), meaning) for status, meaning in _STATUSES)),
        *sections,
    )


def _section(name: str, parser: Parser) -> str:
    usage = " ".join([name, *(_usage(argument) for argument in arguments(parser))])
    parts = [f"## {name}", _help(parser)]
    if name != PROGRAM:
        parts.append(f"Usage: `{usage}{' [options]' if options(parser) else ''}`")
    if arguments(parser):
        rows = [(code(_usage(one)), allowed(one), code(default(one)), one.help or "") for one in arguments(parser)]
        parts.append(table(("argument", "allowed", "default", "meaning"), rows))
    if options(parser):
        parts.append(table(("option", "allowed", "default", "variable", "meaning"), map(_option, options(parser))))
    return "\n\n".join(part for part in parts if part)


def _help(parser: Parser) -> str:
    return cleandoc(parser.help or "").replace("\b\n", "")


def _usage(argument: Parameter) -> str:
    name = (argument.metavar or argument.name).upper() + ("..." if argument.nargs != 1 else "")
    return name if argument.required else f"[{name}]"


def _option(option: Parameter) -> tuple[str, ...]:
    names = ", ".join(code(name) for name in (*option.opts, *option.secondary_opts))
    flag = option.is_flag and not option.secondary_opts
    return (
        names + (" (repeatable)" if option.multiple else ""),
        "no value" if flag else allowed(option),
        code(default(option)),
        code(option.envvar),
        option.help or "",
    )
