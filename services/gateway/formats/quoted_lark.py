"""Lark grammars of texts inside JSON strings: what a grammar matches, as JSON writes it between two quotes.

A text has one such form: quotes, backslashes and control characters are escaped in JSON's shortest way, and every other
character stands for itself. So a grammar's words can be rewritten one by one.

llguidance's lexer takes the longest word and never goes back, and all escapes begin alike. So where a word may hold
escapes, no word that begins with one could come after it. Rules without recursion are therefore made parts of one long
word. Recursive rules stay rules, and there such a pair of words is not allowed.
"""

import json
import re
import warnings
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Final

from services.gateway.formats.lark import expression
from shared.law.grammar import GrammarError

_ESCAPED: Final = ('"', "\\", *map(chr, range(0x20)))  # what JSON does not let stand for itself
_OTHERS: Final = r'[^"\\\x00-\x1f]'
# The terminals of Lark's library that match such characters.
_COMMON: Final = {
    "LF": r"\n",
    "CR": r"\r",
    "NEWLINE": r"(\r?\n)+",
    "WS": r"[ \t\f\r\n]+",
    "WS_INLINE": r"[ \t]+",
    "ESCAPED_STRING": r'"([^"\\]|\\.)*"',
    "SH_COMMENT": r"#[^\n]*",
    "CPP_COMMENT": r"\/\/[^\n]*",
    "C_COMMENT": r"\/\*[^*]*\*+([^*\/][^*]*\*+)*\/",
    "SQL_COMMENT": r"--[^\n]*",
}
_STRING: Final = r'"(?:\\.|[^"\\\n])*"'
_WORD: Final = re.compile(
    rf"(?P<comment>//[^\n]*|\#[^\n]*)|(?P<first>{_STRING})\s*\.\.\s*(?P<last>{_STRING})|(?P<string>{_STRING})(?P<any>i?)"
    r"|/(?P<regex>(?:\\.|[^/\\\n])+)/(?P<flags>[a-z]*)|%import\s+common\s*(?P<imports>[^\n/#]*)"
    r"|(?P<foreign>%(?:json|regex|lark|llguidance)|@|<|~(?!\s*\d))"
    r"|(?P<option>%[a-z]+)|->\s*(?P<alias>\w+)|(?P<modifier>[?!](?=[a-z_]))|(?P<name>[A-Za-z_]\w*)"
)
_DEFINED: Final = re.compile(r"^\s*(\w+)[^\w:|]*:", re.MULTILINE)
_IMPORTED: Final = re.compile(r"(\w+)(?:\s*->\s*(\w+))?")
_UNIT: Final = re.compile(
    r"(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])"
    r"|(?P<dot>\.)|(?P<count>\{[^}]*\})|\(\?(?P<flags>[a-z-]*)(?P<scope>[:)])|(?P<kind>\\[dDwWsS])"
    r"|\\(?:x|u|U)(?:\{(?P<braced>[0-9A-Fa-f]+)\}|(?P<code>(?<=x)[0-9A-Fa-f]{2}|(?<=u)[0-9A-Fa-f]{4}|(?<=U)[0-9A-Fa-f]{8}))"
    r"|\\(?P<escape>.)|(?P<mark>[()|*+?^$])|(?P<plain>.)",
    re.DOTALL,
)
_CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a"}


def quoted(source: str) -> str:
    """The grammar of JSON strings' contents that decode to what `source`, a Lark grammar, matches.

    Raises `GrammarError` for what cannot be rewritten: complements, JSON Schemas, other grammars, control tokens, and
    expressions that only Rust's engine understands.
    """
    if _recurses(source):
        return _WORD.sub(_word, source)
    return f"start: {_part('start')}\n" + _WORD.sub(lambda found: _renamed(found) or _word(found), source)


def _recurses(source: str) -> bool:
    """Whether rules refer to themselves, or white space may stand between any two words."""
    frame = _WORD.sub(lambda found: found["name"] or found["option"] or " ", source)
    begins = list(_DEFINED.finditer(frame))
    ends = [*(one.start() for one in begins[1:]), len(frame)]
    rules = {one[1]: re.findall(r"\w+", frame[one.end() : end]) for one, end in zip(begins, ends, strict=True)}
    try:
        TopologicalSorter(rules).prepare()
    except CycleError:
        return True
    return "%ignore" in frame


def _part(name: str) -> str:
    """A rule's name as that of a part of a word; Lark tells the two by the case."""
    return name if name.isupper() else f"PART_{name.upper()}"


def _renamed(found: re.Match[str]) -> str:
    if found["alias"] or found["modifier"]:
        return " "
    return _part(found["name"]) if found["name"] else ""


def spans_lines(source: str) -> bool:
    """Whether one word of the grammar may hold both a line break and a `<`. Raises `GrammarError` as `quoted` does."""
    for found in _WORD.finditer(source):
        units = list(_units(found["regex"] or "", found["flags"] or ""))
        if all(any(_matches(*unit, character) for unit in units) for character in "\n<"):
            return True
    return False


def _word(found: re.Match[str]) -> str:
    if found["foreign"]:
        raise GrammarError(f"'{found[0]}' cannot be part of a tool's grammar")
    if found["first"]:
        first, last = (f"\\U{ord(_text(found[name])):08x}" for name in ("first", "last"))
        return f"/{_set(f'[{first}-{last}]')}/"
    if found["string"] and found["any"]:
        return f"/{_regex(expression(_text(found['string'])), '')}/i"
    if found["string"]:
        return json.dumps(_written(_text(found["string"])), ensure_ascii=False)
    if found["regex"]:
        return f"/{_regex(found['regex'], found['flags'])}/{found['flags']}"
    if found["imports"] is not None:
        return "\n".join(_import(*one.groups()) for one in _IMPORTED.finditer(found["imports"]))
    return found[0]


def _import(name: str, own: str | None) -> str:
    if name in _COMMON:
        return f"{own or name}: /{_regex(_COMMON[name], '')}/"
    return f"%import common.{name}" + (f" -> {own}" if own else "")


def _text(string: str) -> str:
    try:
        text: str = json.loads(string, strict=False)
    except ValueError:
        raise GrammarError(f"{string} is not a string") from None
    return text


def _written(text: str) -> str:
    """As JSON writes it between quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _regex(source: str, flags: str) -> str:
    """The expression of the JSON forms of what `source` matches."""
    return "".join(_quoted_unit(unit, dotall) for unit, dotall in _units(source, flags))


def _units(source: str, flags: str) -> Iterator[tuple[re.Match[str], bool]]:
    """The parts of an expression, in order, each with whether a dot there matches a line break."""
    _refuse_spacing(flags)
    dotall = ["s" in flags]  # of the open groups
    for unit in _UNIT.finditer(source):
        if unit["scope"] is not None:
            _refuse_spacing(unit["flags"])
            on, _, off = unit["flags"].partition("-")
            inner = (dotall[-1] or "s" in on) and "s" not in off
            if unit["scope"] == ":":
                dotall.append(inner)
            else:
                dotall[-1] = inner
        elif unit["mark"] == "(":
            dotall.append(dotall[-1])
        elif unit["mark"] == ")" and len(dotall) > 1:
            dotall.pop()
        yield unit, dotall[-1]


def _refuse_spacing(flags: str) -> None:
    if "x" in flags:
        raise GrammarError("the flag x cannot be part of a tool's grammar")


def _quoted_unit(unit: re.Match[str], dotall: bool) -> str:
    if unit["set"] or unit["kind"]:
        return _set(unit["set"] or f"[{unit['kind']}]")
    if unit["dot"]:
        return _either(_OTHERS, "".join(one for one in _ESCAPED if dotall or one != "\n"))
    character = _character(unit)
    return _either("", character) if character in _ESCAPED else unit[0]


def _character(unit: re.Match[str]) -> str:
    """The one character for which it stands, "" if it stands for another thing."""
    if code := unit["braced"] or unit["code"]:
        return chr(int(code, 16))
    escape = unit["escape"]
    if escape is None:
        return unit["plain"] or ""
    if escape in "pP":
        raise GrammarError(f"'\\{escape}' cannot be part of a tool's grammar")
    return _CONTROLS.get(escape, "" if escape.isalnum() else str(escape))


def _set(source: str) -> str:
    compiled = _compiled(source)
    return _either(f"[{source}&&{_OTHERS}]", "".join(filter(compiled.match, _ESCAPED)))


def _compiled(source: str) -> re.Pattern[str]:
    """A set of characters as Python reads it, which tells its members."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Python warns of sets that Rust's engine reads differently
            return re.compile(source, re.ASCII)  # Rust counts the same few as spaces
    except (re.error, Warning):
        raise GrammarError(f"'{source}' cannot be part of a tool's grammar") from None


def _either(others: str, escaped: str) -> str:
    """The characters of `others`, or one of those that JSON writes as escapes."""
    forms = [expression(_written(one)) for one in escaped]
    escapes = f"(?-i:{'|'.join(forms)})" if forms else ""
    return f"(?:{'|'.join(filter(None, [others, escapes]))})"


def _matches(unit: re.Match[str], dotall: bool, character: str) -> bool:
    if unit["set"] or unit["kind"]:
        return _compiled(unit["set"] or f"[{unit['kind']}]").match(character) is not None
    return (dotall or character != "\n") if unit["dot"] else _character(unit) == character
