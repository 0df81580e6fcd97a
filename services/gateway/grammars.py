"""Grammars as the verifier takes them: llguidance's JSON form, a Lark grammar that may refer to a required output."""

import json

from services.gateway.requests import Output


def compose(lark: str, output: Output | None) -> str:
    """The grammar of a whole answer; in `lark`, `@output` stands for `output`. Raises a 400 `ApiError`."""
    grammars: list[dict[str, object]] = [{"lark_grammar": lark}]
    if output is not None:
        grammars.append({"name": "output", f"{output.kind}_grammar": output.source})
    return json.dumps({"grammars": grammars})
