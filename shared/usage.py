"""A wrong command line becomes one line: the option, the value, and what is allowed."""

from collections.abc import Mapping, Sequence

from typer.exceptions import TyperException


def explain(error: TyperException, arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """One line for `error`, which `arguments` (or an option's environment twin) caused."""
    message = " ".join(error.format_message().split())
    parameter = getattr(error, "param", None)
    names = [name for name in getattr(parameter, "opts", ()) if name.startswith("-")]
    if not names:
        context = getattr(error, "ctx", None)
        return f"{message} (see {context.command_path} --help)" if context else message
    name = max(names, key=len)
    # "Invalid value for '--port': Input should be ..." says everything but the value.
    allowed = str(getattr(error, "message", message)).removeprefix("Value error, ")
    return f"{name} {_value(names, arguments, environment, getattr(parameter, 'envvar', None))}: {allowed}"


def _value(names: Sequence[str], arguments: Sequence[str], environment: Mapping[str, str], envvar: object) -> str:
    value = ""
    for index, argument in enumerate(arguments):
        for name in names:
            if argument == name and index + 1 < len(arguments):
                value = arguments[index + 1]
            elif argument.startswith(f"{name}="):
                value = argument.removeprefix(f"{name}=")
    if not value and isinstance(envvar, str):
        value = environment.get(envvar, "")
    return value
