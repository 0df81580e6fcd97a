"""JSON read as it comes: checks every character when it arrives, and reads nothing twice (RFC 8259).

More forgiving than the standard in one thing: control characters inside strings, which models write when they forget to
escape a line break. The output has them escaped.
"""

import json
import re
from enum import Enum, auto
from typing import Final

_SPACE: Final = re.compile(r"[ \t\n\r]+")
_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]+')
_LETTERS: Final = re.compile(r"[a-z]+")
_NUMERAL: Final = re.compile(r"[-+.0-9eE]+")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LONGEST: Final = 1000  # characters of a number; Python's json, for one, reads no more than 4300 digits
_DEEPEST: Final = 200  # nesting; recursive parsers on the client's side give up at some 1000


class _Expect(Enum):
    VALUE = auto()
    VALUE_OR_END = auto()  # after [
    KEY = auto()
    KEY_OR_END = auto()  # after {
    COLON = auto()
    COMMA_OR_END = auto()
    STRING = auto()
    ESCAPE = auto()
    HEX = auto()
    WORD = auto()
    NUMBER = auto()
    NOTHING = auto()


class JsonText:
    """One JSON value. `push` until it is `done` or `broken`; a number is done only when the next character comes."""

    def __init__(self, *, object_only: bool = False) -> None:
        self.done = False
        self.broken = False
        self._object_only = object_only
        self._expect = _Expect.VALUE
        self._stack: list[str] = []  # the closing brackets to come
        self._key = False  # the string being read is one
        self._word = ""  # of true, false, null or a number, so far
        self._digits = 0

    def push(self, text: str, start: int = 0) -> tuple[str, int]:
        """The JSON text of what was read from `start` on, and where reading stopped: at the end, once the value is
        done, or at the first character that cannot belong to it."""
        out: list[str] = []
        at = start
        while at < len(text) and not self.done and not self.broken:
            at = self._step(text, at, out)
        return "".join(out), at

    def _step(self, text: str, at: int, out: list[str]) -> int:
        if self._expect is _Expect.STRING:
            return self._string(text, at, out)
        if self._expect is _Expect.WORD:
            return self._literal(text, at, out)
        if self._expect is _Expect.NUMBER:
            return self._number(text, at, out)
        character = text[at]
        if self._expect in (_Expect.ESCAPE, _Expect.HEX):
            self._escape(character)
        elif (space := _SPACE.match(text, at)) is not None:
            if self._stack:  # white space around the value does not belong to it
                out.append(space.group())
            return space.end()
        else:
            self._structure(character)
        if self.broken or self._expect in (_Expect.WORD, _Expect.NUMBER):
            return at
        out.append(character)
        return at + 1

    def _structure(self, character: str) -> None:
        expect = self._expect
        if expect in (_Expect.VALUE, _Expect.VALUE_OR_END) and self._value(character):
            return
        if expect in (_Expect.KEY, _Expect.KEY_OR_END) and character == '"':
            self._key, self._expect = True, _Expect.STRING
        elif expect is _Expect.COLON and character == ":":
            self._expect = _Expect.VALUE
        elif expect is _Expect.COMMA_OR_END and character == ",":
            self._expect = _Expect.KEY if self._stack[-1] == "}" else _Expect.VALUE
        elif (
            expect in (_Expect.COMMA_OR_END, _Expect.KEY_OR_END, _Expect.VALUE_OR_END) and character == self._stack[-1]
        ):
            self._stack.pop()
            self._complete()
        else:
            self.broken = True

    def _value(self, character: str) -> bool:
        if self._object_only and not self._stack and character != "{":
            return False
        if character in "{[":
            self._stack.append("}" if character == "{" else "]")
            self._expect = _Expect.KEY_OR_END if character == "{" else _Expect.VALUE_OR_END
            self.broken = len(self._stack) > _DEEPEST
        elif character == '"':
            self._key, self._expect = False, _Expect.STRING
        elif character in "tfn":
            self._word, self._expect = "", _Expect.WORD
        elif character == "-" or character.isdecimal():
            self._word, self._expect = "", _Expect.NUMBER
        else:
            return False
        return True

    def _string(self, text: str, at: int, out: list[str]) -> int:
        plain = _PLAIN.match(text, at)
        if plain is not None:
            out.append(plain.group())
            return plain.end()
        character = text[at]
        if character == "\\":
            self._expect = _Expect.ESCAPE
        elif character == '"':
            if self._key:
                self._expect = _Expect.COLON
            else:
                self._complete()
        else:
            character = json.dumps(character)[1:-1]
        out.append(character)
        return at + 1

    def _escape(self, character: str) -> None:
        if self._expect is _Expect.HEX:
            self.broken = character not in _HEX
            self._digits -= 1
            if not self._digits:
                self._expect = _Expect.STRING
        elif character == "u":
            self._digits, self._expect = 4, _Expect.HEX
        elif character in _ESCAPES:
            self._expect = _Expect.STRING
        else:
            self.broken = True

    def _literal(self, text: str, at: int, out: list[str]) -> int:
        word = {"t": "true", "f": "false", "n": "null"}[self._word[:1] or text[at]]
        if text[at] != word[len(self._word)]:
            self.broken = True
            return at
        self._word += text[at]
        out.append(text[at])
        if self._word == word:
            self._complete()
        return at + 1

    def _number(self, text: str, at: int, out: list[str]) -> int:
        numeral = _NUMERAL.match(text, at, at + _LONGEST - len(self._word))
        if numeral is not None:
            self._word += numeral.group()
            out.append(numeral.group())
            return numeral.end()
        self.broken = len(self._word) == _LONGEST or _NUMBER.fullmatch(self._word) is None
        self._complete()
        return at

    def _complete(self) -> None:
        self._expect = _Expect.COMMA_OR_END if self._stack else _Expect.NOTHING
        self.done = not self._stack


class StringText:
    """The characters of one JSON string. Push what follows its opening quote until it is `done` or `broken`."""

    def __init__(self) -> None:
        self.done = False
        self.broken = False
        self._escape = ""
        self._high = ""  # the first half of a surrogate pair

    def push(self, text: str, start: int = 0) -> tuple[str, int]:
        """The characters that are now certain, and where reading stopped: behind the closing quote or at the end."""
        out: list[str] = []
        at = start
        while at < len(text) and not self.done and not self.broken:
            plain = None if self._escape else _PLAIN.match(text, at)
            if plain is not None:
                out.append(self._flush() + plain.group())
                at = plain.end()
            else:
                self._special(text[at], out)
                at += not self.broken
        return "".join(out), at

    def _special(self, character: str, out: list[str]) -> None:
        if self._escape:
            self._escaped(character, out)
        elif character == "\\":
            self._escape = character
        elif character == '"':
            out.append(self._flush())
            self.done = True
        else:
            out.append(self._flush() + character)

    def _escaped(self, character: str, out: list[str]) -> None:
        if len(self._escape) == 1 and character in _ESCAPES:
            out.append(self._flush() + _ESCAPES[character])
            self._escape = ""
        elif (self._escape == "\\" and character == "u") or (len(self._escape) > 1 and character in _HEX):
            self._escape += character
            if len(self._escape) == 6:
                self._unit(int(self._escape[2:], 16), out)
                self._escape = ""
        else:
            self.broken = True

    def _unit(self, unit: int, out: list[str]) -> None:
        if self._high and 0xDC00 <= unit < 0xE000:
            out.append((self._high + chr(unit)).encode("utf-16", "surrogatepass").decode("utf-16"))
            self._high = ""
            return
        out.append(self._flush())
        if 0xD800 <= unit < 0xDC00:
            self._high = chr(unit)
        else:
            out.append("\ufffd" if 0xDC00 <= unit < 0xE000 else chr(unit))

    def _flush(self) -> str:
        """Outputs nothing for half of a surrogate pair."""
        lost, self._high = "\ufffd" if self._high else "", ""
        return lost
