"""Grammars over a toy vocabulary: what may come, where it may end, and what a hostile one can do."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shared.law.grammar import MAX_GRAMMAR_BYTES, GrammarError, Grammars, Matcher, lark_of_gbnf, lark_of_regex
from shared.model.llama.model import Model
from tests.toys import EOG, MARK, VOCABULARY, ToyVocabulary

TOY = ToyVocabulary()
GRAMMARS = Grammars(TOY)
COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def of_schema(schema: dict[str, Any]) -> str:
    return json.dumps({"grammars": [{"json_schema": {"x-guidance": COMPACT, **schema}}]})


def after(grammar: str, text: str, grammars: Grammars = GRAMMARS) -> Matcher:
    matcher = grammars.compile(grammar)
    for token in TOY.tokenize(text):
        assert matcher.push(token)
    return matcher


def allowed(matcher: Matcher) -> set[str]:
    return {TOY.text([int(token)]) or f"<{token}>" for token in matcher.mask().nonzero()[0]}


def test_the_mask_holds_what_may_come_next() -> None:
    grammar = 'start: "a" ("b" | "c" "d")'
    assert allowed(after(grammar, "a")) == {"b", "c"}
    assert allowed(after(grammar, "ac")) == {"d"}


def test_every_end_of_generation_is_allowed_exactly_where_the_grammar_may_end() -> None:
    class ManyEnds(ToyVocabulary):
        eog = (EOG, 0, 62)

    grammars = Grammars(ManyEnds())
    may_go_on, must_end, must_go_on = (after('start: "a" "b"?', text, grammars) for text in ("a", "ab", ""))
    assert set(may_go_on.mask().nonzero()[0]) == {*ManyEnds.eog, *TOY.tokenize("b")}
    assert set(must_end.mask().nonzero()[0]) == set(ManyEnds.eog)
    assert set(must_go_on.mask().nonzero()[0]) == set(TOY.tokenize("a"))
    assert (may_go_on.complete, must_end.complete, must_go_on.complete) == (False, True, False)
    assert [may_go_on.allows([end]) for end in ManyEnds.eog] == [1, 1, 1]
    assert must_go_on.allows([EOG]) == 0


def test_tokens_without_a_text_are_never_allowed() -> None:
    matcher = GRAMMARS.compile("start: /(?s:.*)/")
    nothing = {token for token in range(VOCABULARY) if not TOY.piece(token, special=True)}
    assert nothing
    assert not nothing & set(matcher.mask().nonzero()[0])
    assert matcher.mask().size == VOCABULARY


def test_special_tokens_come_only_where_they_are_named() -> None:
    assert not GRAMMARS.compile("start: /(?s:.*)/").mask()[MARK]
    matcher = GRAMMARS.compile('start: <mark> "a"')
    assert matcher.mask().nonzero()[0].tolist() == [MARK]
    assert matcher.push(MARK)
    assert allowed(matcher) == {"a"}


def test_forced_text_is_forced_in_its_canonical_tokens() -> None:
    matcher = GRAMMARS.compile(
        of_schema({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]})
    )
    assert TOY.text(matcher.forced) == '{"name": '
    assert matcher.forced == TOY.tokenize('{"name": ')
    assert matcher.mask().nonzero()[0].tolist() == matcher.forced[:1], "although { would be a beginning too"
    assert not after(of_schema({"type": "integer"}), "1").forced


def test_text_that_spells_a_special_token_stays_text() -> None:
    """An enum may hold what the vocabulary has a control token for; the answer must hold its characters."""

    class Marked(ToyVocabulary):
        def tokenize(self, text: str, *, parse_special: bool = True) -> list[int]:
            before, mark, behind = text.partition("age")
            tokens = super().tokenize(before)
            return [*tokens, MARK, *super().tokenize(behind)] if mark else tokens

    matcher = Grammars(Marked()).compile('start: "name age true"')
    forced = matcher.forced
    assert MARK not in forced
    assert TOY.text(forced) == "name age true"
    assert all(map(matcher.push, forced))


def test_a_vocabulary_that_puts_a_space_before_text_forces_no_space() -> None:
    class Spaced(ToyVocabulary):
        def tokenize(self, text: str, *, parse_special: bool = True) -> list[int]:
            return super().tokenize(" " + text)

    matcher = Grammars(Spaced()).compile(of_schema({"const": "me name"}))
    assert TOY.text(matcher.forced) == '"me name"'
    assert matcher.forced == TOY.tokenize('"me name"')


def test_what_was_pushed_can_be_taken_back() -> None:
    matcher = GRAMMARS.compile(of_schema({"enum": ["age", "aged", "name"]}))
    before = matcher.mask().tolist()
    for tokens in (TOY.tokenize('"age'), TOY.tokenize('"name"')):
        copy = matcher.copy()
        for token in tokens:
            assert matcher.push(token)
            assert copy.push(token)
        assert matcher.mask().tolist() == copy.mask().tolist()
        matcher.pop(len(tokens))
        assert matcher.mask().tolist() == before


def test_a_token_that_is_not_allowed_fails_the_matcher_and_no_other() -> None:
    matcher = GRAMMARS.compile('start: "ab"')
    copy = matcher.copy()
    assert not matcher.push(TOY.tokenize("b")[0])
    assert matcher.failed
    assert not matcher.mask().any()
    assert not copy.failed
    assert copy.mask().any()


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "maxLength": 65536},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": r"^(\d+|imap:[A-Za-z0-9_-]+)$"}}},
        {"type": "object", "properties": {}},
        {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"c": {"$ref": "#/$defs/n"}}}}},
        {"type": "object", "patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False},
        {"type": "number", "minimum": 0.5, "maximum": 12.25},
    ],
    ids=["maxLength", "pattern", "no properties", "recursive", "patternProperties", "bounds"],
)
def test_schemas_that_others_choke_on_can_be_built(schema: dict[str, Any]) -> None:
    assert GRAMMARS.compile(of_schema(schema)).mask().any()


def chain(links: int) -> dict[str, Any]:
    definitions = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(links)}
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{links}": {"type": "null"}}}


HOSTILE = {
    "not a grammar": "%%%",
    "another object": '{"a": 1}',
    "no grammars": '{"grammars": []}',
    "brackets": "start: " + "(" * 50_000 + '"a"' + ")" * 50_000,
    "deep regex": "start: /" + "(" * 50_000 + ")" * 50_000 + "/",
    "deep JSON": '{"grammars": [{"json_schema": ' + '{"items":' * 20_000 + "{}" + "}" * 20_000 + "}]}",
    "unknown name": "start: nowhere",
    "too large": "start: /" + "a" * MAX_GRAMMAR_BYTES + "/",
    "surrogates": "start: \ud800",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_grammar_is_refused(name: str) -> None:
    with pytest.raises(GrammarError):
        GRAMMARS.compile(HOSTILE[name])


@pytest.mark.parametrize(
    "grammar",
    [
        json.dumps({"grammars": [{"json_schema": chain(8000)}]}),
        "start: r0\n" + "\n".join(f"r{i}: r{i + 1}" for i in range(8000)) + '\nr8000: "a"',
    ],
    ids=["references", "rules"],
)
def test_recursion_does_not_end_the_process(grammar: str) -> None:
    assert GRAMMARS.compile(grammar).mask().any()


def test_a_grammar_that_takes_for_ever_is_given_up() -> None:
    patterns = [{"type": "string", "pattern": f"a.{{{i}}}b"} for i in range(23)]
    with pytest.raises(GrammarError, match="too complex"):
        GRAMMARS.compile(of_schema({"allOf": patterns}), within_s=0.05)


def test_a_real_vocabulary_writes_the_text_of_its_control_tokens_as_text(model_path: Path) -> None:
    model = Model(model_path, vocab_only=True)
    vocabulary = model.vocabulary
    matcher = Grammars(vocabulary).compile(of_schema({"enum": ["<|im_end|> a", "<|im_end|> b"]}))
    forced = matcher.forced
    assert not set(forced) & (vocabulary.special | set(vocabulary.eog))
    assert '"<|im_end|>'.startswith(b"".join(map(vocabulary.piece, forced)).decode())
    assert set(vocabulary.eog) < vocabulary.special
    model.close()


@pytest.mark.parametrize(
    ("source", "good", "bad"),
    [
        ('root ::= "yes" | "no" name\nname ::= [a-c]+ # names\n', ["yes", "noabc"], ["no", "nod", "yesa"]),
        ('root ::= start "a"\nstart ::= "b" | "start"', ["ba", "starta"], ["a"]),
        ('root ::= "\\"" [^"\\\\\\x7F]* "\\""', ['"abc"'], ["abc"]),
    ],
)
def test_gbnf_is_understood(source: str, good: Sequence[str], bad: Sequence[str]) -> None:
    _matches(lark_of_gbnf(source), good, bad)


@pytest.mark.parametrize("source", ['root ::= "yes', 'name ::= "a"', "root ::= nowhere", "root ::= " + "(" * 5000, ""])
def test_broken_gbnf_is_refused(source: str) -> None:
    with pytest.raises(GrammarError):
        lark_of_gbnf(source)


def test_a_regular_expression_matches_the_whole_text() -> None:
    _matches(lark_of_regex(r"^[a-c]{2,3}(:\d+)?$"), ["ab", "abc:12"], ["a", "abcd", "ab:"])


def _matches(lark: str, good: Sequence[str], bad: Sequence[str]) -> None:
    for text in (*good, *bad):
        tokens = [*TOY.tokenize(text), EOG]
        assert (GRAMMARS.compile(lark).allows(tokens) == len(tokens)) == (text in good), text
