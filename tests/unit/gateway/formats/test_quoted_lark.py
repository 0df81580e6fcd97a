"""A grammar of the texts inside JSON strings allows a text's JSON form exactly where the grammar allows the text."""

import json
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.gateway.formats.quoted_lark import quoted, spans_lines
from shared.law.grammar import GrammarError, Grammars
from tests.examples import few

APPLY_PATCH: Final = """
// What Codex sends as the grammar of its tool for edits.
start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
"""
PATCH: Final = (
    "*** Begin Patch\n*** Update File: a/b.py\n@@ def f():\n-    return \"a\\n\"\n+\treturn '/é😀'\n*** End Patch\n"
)


class Bytes:
    """A vocabulary of all bytes, and an end."""

    n_tokens = 257
    eog = (256,)
    special = frozenset((256,))

    def piece(self, token: int, *, special: bool = False) -> bytes:
        return bytes([token]) if token < 256 else b""

    def tokenize(self, text: str, *, parse_special: bool = True) -> list[int]:
        return list(text.encode())


GRAMMARS: Final = Grammars(Bytes())


def allows(lark: str, text: str) -> bool:
    matcher = GRAMMARS.compile(json.dumps({"grammars": [{"lark_grammar": lark}]}))
    tokens = list(text.encode())
    if matcher.allows(tokens) != len(tokens):
        return False
    assert all(map(matcher.push, tokens))
    return bool(matcher.mask()[256])


def in_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


# In none of these does a word swallow the beginning of the next, after which llguidance would not go back.
SOURCES: Final = [
    r'start: /[^\n"x]*/ "x\ny"?',
    r"start: /(?s:.)[a-z\\]+/ | /[\s]\d\/\x41\u{42}\S/ | /[^a]\t\./",
    r'start: "a".."z" " ".."~" "aB\n"i?',
    r"start: /a.b/s | /a.c/ | /(?i:x(?-i:y)|\n)+/",
    '?start: line ~ 1..2\nline: (/\\w+/ | line2) LF -> one\nline2: "(" line2? ")"\n%import common.LF',
    'start: WORD (WS WORD)*\nWORD: /[a"]+/ // "not a string"\n%import common (WS)',
]


@settings(max_examples=few(200))
@given(st.sampled_from(SOURCES), st.text(st.sampled_from('abxyzB"\\ \n\t/().\x01é1'), max_size=6))
@example(SOURCES[0], "é\\x\ny")
@example(SOURCES[1], '"\\')
@example(SOURCES[1], "\n1/AB)")
@example(SOURCES[2], 'a"aB\n')
@example(SOURCES[2], "b\\AB\n")
@example(SOURCES[3], "a\nb")
@example(SOURCES[3], "a\nc")
@example(SOURCES[3], "Xy\n")
@example(SOURCES[4], "a1\n((()))\n")
@example(SOURCES[5], 'a" \n"')
def test_a_text_is_allowed_in_json_exactly_where_it_is_allowed_bare(source: str, text: str) -> None:
    assert allows(quoted(source), in_json(text)) is allows(source, text)


@pytest.mark.parametrize(
    ("text", "right"),
    [(PATCH, True), (PATCH[:-1], True), (PATCH.replace("***", "**"), False), (PATCH.replace("@@ ", "@"), False)],
)
def test_codex_s_patches_keep_their_grammar_in_json(text: str, right: bool) -> None:
    assert allows(APPLY_PATCH, text) is right
    assert allows(quoted(APPLY_PATCH), in_json(text)) is right


@pytest.mark.parametrize(
    "source",
    [
        'start: %json {"type": "object"}',
        "start: T\nT: /a+/ & ~/aa/",
        "start: <|end|>",
        "start: @other",
        r"start: /\p{L}/",
        r"start: /[[a-z]--[b]]/",
        "start: /a b/x",
        r"start: /(?x)a b/",
    ],
)
def test_what_cannot_be_rewritten_is_refused(source: str) -> None:
    with pytest.raises(GrammarError, match="cannot be part of a tool's grammar"):
        quoted(source)


@pytest.mark.parametrize(
    ("source", "over"),
    [
        (APPLY_PATCH, False),
        ("start: /.+/s", True),
        ("start: /(.|\\n)*/", True),
        ("start: /[^a]/", True),
        ('start: "a\\n<" /[a-z\\n]+/', False),
    ],
)
def test_words_that_may_run_over_a_mark_on_a_line_of_its_own_are_known(source: str, over: bool) -> None:
    assert spans_lines(source) is over
