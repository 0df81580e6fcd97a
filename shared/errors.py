"""The one error that ends a process before it serves: a message for the person who started it."""


class StartError(RuntimeError):
    """A bad option or a missing resource: one line that names the option, the value and what is allowed."""

    def __init__(self, option: str, value: object, allowed: str) -> None:
        super().__init__(f"{option} {value}: {allowed}")
        self.option = option
