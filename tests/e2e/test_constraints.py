"""Structured output on the real model: a model of 135M parameters keeps to what it is asked for, drafts or not."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest

from services.drafter.lookup_proposer import LookupProposer
from services.gateway.formats.grammars import Composer
from services.gateway.requests.types import Output
from services.verifier.engine import GRAMMAR
from services.verifier.load import LoadedTarget
from shared.law.grammar import Grammars
from shared.model.llama.vocabulary import Vocabulary
from shared.wire.broker import Broker
from shared.wire.messages import Finish, Job, Sampling, Speculation
from tests.stack import Client, client, drafter, verifier

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

ASKED = "<|im_start|>user\nDescribe a person named Ada as JSON.<|im_end|>\n<|im_start|>assistant\n"
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 1, "maximum": 120},
        "likes": {"type": "array", "items": {"enum": ["maths", "music", "horses"]}, "minItems": 1, "maxItems": 2},
        "born": {"$ref": "#/$defs/born"},
    },
    "required": ["name", "age", "likes", "born"],
    "additionalProperties": False,
    "$defs": {
        "born": {
            "type": "object",
            "properties": {"year": {"type": "integer", "maximum": 2100}},
            "required": ["year"],
            "additionalProperties": False,
        }
    },
}
DIGITS = re.compile(r"[0-9]{3}-[0-9]{4}")


@dataclass(frozen=True, slots=True)
class Case:
    kind: Literal["json", "regex", "lark", "gbnf"]
    source: Any
    tokens: int = 100  # at most

    def check(self, text: str) -> None:
        if self.kind == "json":
            jsonschema.validate(json.loads(text), self.source)
        elif self.kind == "regex":
            assert DIGITS.fullmatch(text)
        else:
            assert re.fullmatch(r"(yes|no)( and (yes|no)){1,3}", text)


CASES = {
    "strict schema": Case("json", PERSON),
    "any object": Case("json", {"type": "object"}, tokens=40),  # without bounds this model goes on for ever
    "regex": Case("regex", DIGITS.pattern),
    "Lark": Case("lark", 'start: word (" and " word){1,3}\nword: "yes" | "no"'),
    "GBNF": Case("gbnf", 'root ::= word (" and " word){1,3}\nword ::= "yes" | "no"'),
}
LAWS = [Sampling(seed=1, temperature=0.0), Sampling(seed=2, temperature=0.9, top_p=0.95), Sampling(seed=3)]


async def job(one: Client, vocabulary: Vocabulary, case: Case, sampling: Sampling) -> Job:
    composer = Composer(Grammars(vocabulary))
    grammar = await composer.compose("start: @output", Output(kind=case.kind, source=case.source, param="x"))
    plain = one.job(vocabulary.tokenize(ASKED), sampling, case.tokens, Speculation.ALWAYS)
    return msgspec.structs.replace(plain, grammar=grammar)


@pytest.mark.parametrize("name", CASES)
async def test_an_answer_matches_what_was_asked_and_is_the_same_with_and_without_drafts(
    name: str,
    valkey: Broker,
    valkey_url: str,
    whole_target: LoadedTarget,
    model_path: Path,
    vocabulary: Vocabulary,
) -> None:
    async with verifier(valkey_url, whole_target), client(valkey_url, model_path) as one:
        jobs = [await job(one, vocabulary, CASES[name], law) for law in LAWS]
        plain = [
            await one.ask(msgspec.structs.replace(job, request_id=job.request_id + "-off", speculation=Speculation.OFF))
            for job in jobs
        ]
        forced = [await one.ask(job) for job in jobs]
        async with drafter(valkey_url, LookupProposer()):
            await one.cards(2)
            again = [msgspec.structs.replace(job, request_id=job.request_id + "-drafts") for job in jobs]
            drafted = [await one.ask(job) for job in again]
    for off, on, helped in zip(plain, forced, drafted, strict=True):
        assert off.tokens == on.tokens == helped.tokens
        if off.chunks[-1].finish is Finish.STOP:
            CASES[name].check(b"".join(map(vocabulary.piece, off.tokens)).decode())
        else:
            assert name == "any object", "what is bounded ends"
    assert not any(chunk.drafted for answer in plain for chunk in answer.chunks)
    if name == "strict schema":
        assert all(answer.sources == {GRAMMAR} for answer in forced)
        rounds = sum(len(answer.chunks) for answer in forced)
        assert sum(len(answer.tokens) for answer in forced) > 1.2 * rounds
