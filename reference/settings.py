"""The page of draftmesh.toml: every key, what it may be, and which commands read it."""

from collections import defaultdict

from reference.command_lines import Parameter, allowed, commands, default
from reference.markdown import code, codes, page, table
from shared.settings.command_settings import PROGRAM, keys
from shared.settings.settings_file import NAME


def text() -> str:
    """The page."""
    found: defaultdict[str, dict[str, Parameter]] = defaultdict(dict)
    for name, parser in commands().items():
        if name != PROGRAM:
            for key, parameter in keys(parser).items():
                found[key][name.removeprefix(f"{PROGRAM} ").replace(" ", ".")] = parameter
    return page(
        NAME,
        "In a table named after a command, such as `[gateway]` or `[keys.new]`, a key holds for that command. At the"
        " top level it holds for every command that reads it; there may stand those that also have a variable."
        " [Settings](../settings.md) says more.",
        table(
            ("key", "value", "default", "read by", "at the top level", "meaning"),
            (_row(key, found[key]) for key in sorted(found)),
        ),
    )


def _row(key: str, readers: dict[str, Parameter]) -> tuple[str, ...]:
    parameters = list(readers.values())
    # The same option may be a list for one command and a single value for another.
    several = [command for command, parameter in readers.items() if parameter.multiple]
    value = ", ".join(dict.fromkeys(_value(parameter) for parameter in parameters))
    if several and len(several) < len(readers):
        value += f" (a list: {codes(several)})"
    defaults = dict.fromkeys(default(parameter) for parameter in parameters)
    meanings = dict.fromkeys(parameter.help for parameter in parameters)
    general = "yes" if any(parameter.envvar for parameter in parameters) else ""
    return (code(key), value, codes(one for one in defaults if one), codes(readers), general, " / ".join(meanings))


def _value(parameter: Parameter) -> str:
    if parameter.is_flag:
        return "`true` or `false`"
    kind = allowed(parameter) or "text"
    return f"list: {kind}" if parameter.multiple else kind
