"""What an answer must match, under every name that servers gave it: `response_format`, `grammar`, `regex` …"""

import json
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError, from_json

from services.gateway.errors import invalid
from services.gateway.requests.types import Output

ANY_OBJECT: Final = {"type": "object"}


def _schema(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return from_json(value) if value else None
    except ValueError:
        raise PydanticCustomError("schema", "must be a JSON Schema, as an object or as its text") from None


Schema = Annotated[dict[str, Any] | None, BeforeValidator(_schema)]


class NamedSchema(BaseModel):
    """OpenAI's nesting of a schema; the gateway always enforces it."""

    definition: Schema = Field(None, alias="schema")


class ResponseFormat(BaseModel):
    """OpenAI's field, with llama.cpp's `schema` beside `type`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None
    definition: Schema = Field(None, alias="schema")

    def output(self) -> Output | None:
        """The output that it asks for. Raises a 400 `ApiError` for a missing schema."""
        if self.type == "text":
            return None
        if self.json_schema is not None and self.json_schema.definition is not None:
            return Output(kind="json", source=self.json_schema.definition, param="response_format.json_schema.schema")
        if self.definition is not None:
            return Output(kind="json", source=self.definition, param="response_format.schema")
        if self.type == "json_object":
            return Output(kind="json", source=ANY_OBJECT, param="response_format")
        param = "response_format.json_schema.schema"
        raise invalid(param, f"'{param}' is required.", "missing_required_parameter")


class StructuredOutputs(BaseModel):
    """vLLM's field."""

    definition: Schema = Field(None, alias="json")
    json_object: bool | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    structural_tag: Any = None
    whitespace_pattern: Any = None


class OutputFields(BaseModel):
    """A request may have at most one of them."""

    response_format: ResponseFormat | None = None
    json_schema: Schema = None
    regex: str | None = None
    regex_pattern: str | None = None
    grammar: str | None = None
    grammar_string: str | None = None
    ebnf: str | None = None
    lark: str | None = None
    structured_outputs: StructuredOutputs | None = None

    def output(self) -> Output | None:
        """What the answer must match. Raises a 400 `ApiError` if two fields ask for something."""
        asked = [output for output in self._outputs() if output is not None]
        if len(asked) > 1:
            raise invalid(asked[1].param, f"'{asked[0].param}' and '{asked[1].param}' cannot be asked for together.")
        return asked[0] if asked else None

    def _outputs(self) -> list[Output | None]:
        """What each field asks for."""
        return [
            self.response_format.output() if self.response_format is not None else None,
            _json(self.json_schema, "json_schema"),
            _regex(self.regex, "regex"),
            _regex(self.regex_pattern, "regex_pattern"),
            _grammar(self.grammar, "grammar"),
            _grammar(self.grammar_string, "grammar_string"),
            _grammar(self.ebnf, "ebnf"),
            Output(kind="lark", source=self.lark, param="lark") if self.lark else None,
            *self._structured(),
        ]

    def _structured(self) -> list[Output | None]:
        asked, name = self.structured_outputs, "structured_outputs"
        if asked is None:
            return []
        for unbuilt in ("structural_tag", "whitespace_pattern"):
            if getattr(asked, unbuilt):
                param = f"{name}.{unbuilt}"
                raise invalid(param, f"'{param}' is not supported.", "unsupported_parameter")
        return [
            _json(asked.definition, f"{name}.json"),
            _json(ANY_OBJECT if asked.json_object else None, f"{name}.json_object"),
            _regex(asked.regex, f"{name}.regex"),
            _choice(asked.choice, f"{name}.choice"),
            _grammar(asked.grammar, f"{name}.grammar"),
        ]


def _json(schema: dict[str, Any] | None, param: str) -> Output | None:
    return Output(kind="json", source=schema, param=param) if schema else None


def _regex(pattern: str | None, param: str) -> Output | None:
    return Output(kind="regex", source=pattern, param=param) if pattern else None


def _choice(choices: list[str] | None, param: str) -> Output | None:
    # Lark writes strings as JSON does.
    alternatives = " | ".join(map(json.dumps, choices or ()))
    return Output(kind="lark", source=f"start: {alternatives}", param=param) if choices else None


def _grammar(source: str | None, param: str) -> Output | None:
    """Recognises GBNF by its `::=`, which Lark does not have, because one field may hold either."""
    if not source:
        return None
    return Output(kind="gbnf" if "::=" in source else "lark", source=source, param=param)
