"""What an answer must match, under every name that servers gave it: `response_format`, `grammar`, `regex` …"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError, from_json

from services.gateway.errors import invalid
from services.gateway.requests.schemas import strict_fault, without_nulls
from services.gateway.requests.types import Output
from shared.law.grammar import MAX_GRAMMAR_BYTES

S = TypeVar("S", str, list[str])
ANY_OBJECT: Final = {"type": "object"}


def _schema(value: object) -> object:
    if not isinstance(value, str):
        return without_nulls(value)
    if len(value) > MAX_GRAMMAR_BYTES:
        raise PydanticCustomError("schema", "may have at most {limit} characters", {"limit": MAX_GRAMMAR_BYTES})
    try:
        return without_nulls(from_json(value))
    except ValueError:
        raise PydanticCustomError("schema", "must be a JSON Schema, as an object or as its text") from None


Schema = Annotated[dict[str, Any] | None, BeforeValidator(_schema)]


class NamedSchema(BaseModel):
    """OpenAI's nesting of a schema; the gateway always enforces it, and `strict` asks for one that leaves nothing
    open."""

    definition: Schema = Field(None, alias="schema")
    strict: bool | None = None


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
            param = "response_format.json_schema.schema"
            return named_output(self.json_schema.definition, self.json_schema.strict, param)
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
    """A request may have at most one of them.

    `grammar` and `grammar_string` may be empty, because llama.cpp's and TabbyAPI's clients always send them. Of the
    others, an empty schema means any JSON, and an empty expression, grammar or choice is refused.
    """

    response_format: ResponseFormat | None = None
    json_schema: Schema = None
    regex: str | None = None
    regex_pattern: str | None = None
    grammar: str | None = None
    grammar_string: str | None = None
    ebnf: str | None = None
    lark: str | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None

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
            _grammar(self.grammar or None, "grammar"),
            _grammar(self.grammar_string or None, "grammar_string"),
            _grammar(self.ebnf, "ebnf"),
            Output(kind="lark", source=_some(self.lark, "lark"), param="lark") if self.lark is not None else None,
            *self._structured(),
            _json(self.guided_json, "guided_json"),
            _regex(self.guided_regex, "guided_regex"),
            _choice(self.guided_choice, "guided_choice"),
            _grammar(self.guided_grammar, "guided_grammar"),
        ]

    def _structured(self) -> list[Output | None]:
        asked, name = self.structured_outputs, "structured_outputs"
        if asked is None:
            return []
        for unbuilt in ("structural_tag", "whitespace_pattern"):
            if getattr(asked, unbuilt):
                param = f"{name}.{unbuilt}"
                raise invalid(param, f"'{param}' is not supported.", "unsupported_parameter")
        found = [
            _json(asked.definition, f"{name}.json"),
            _json(ANY_OBJECT if asked.json_object else None, f"{name}.json_object"),
            _regex(asked.regex, f"{name}.regex"),
            _choice(asked.choice, f"{name}.choice"),
            _grammar(asked.grammar, f"{name}.grammar"),
        ]
        if not any(found):
            raise invalid(name, f"'{name}' must ask for a schema, an expression, a choice or a grammar.")
        return found


def named_output(schema: Mapping[str, Any], strict: bool | None, param: str) -> Output:
    """Text that matches a schema. Raises a 400 `ApiError` for a `strict` schema that leaves an object open."""
    fault = strict_fault(schema) if strict else ""
    if fault:
        raise invalid(param, f"'{param}': {fault}.")
    return Output(kind="json", source=schema, param=param)


def _some(value: S, param: str) -> S:
    """The value. Raises a 400 `ApiError` for an empty one, which would leave the answer free."""
    if not value:
        raise invalid(param, f"'{param}' must not be empty.")
    return value


def _json(schema: dict[str, Any] | None, param: str) -> Output | None:
    return Output(kind="json", source=schema, param=param) if schema is not None else None


def _regex(pattern: str | None, param: str) -> Output | None:
    return Output(kind="regex", source=_some(pattern, param), param=param) if pattern is not None else None


def _choice(choices: list[str] | None, param: str) -> Output | None:
    if choices is None:
        return None
    # Lark writes strings as JSON does.
    alternatives = " | ".join(map(json.dumps, _some(choices, param)))
    return Output(kind="lark", source=f"start: {alternatives}", param=param)


def _grammar(source: str | None, param: str) -> Output | None:
    """Recognises GBNF by its `::=`, which Lark does not have, because one field may hold either."""
    if source is None:
        return None
    return Output(kind="gbnf" if "::=" in source else "lark", source=_some(source, param), param=param)
