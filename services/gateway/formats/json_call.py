"""A tool call written as a JSON object: its name, and its arguments as an object or as the JSON text of one."""

from collections.abc import Callable
from typing import Final

from services.gateway.formats.json_text import JsonText, StringText
from services.gateway.formats.reader import Reader, Steps
from services.gateway.formats.sink import PartSink

_ARGUMENTS: Final = ("arguments", "parameters")
_KNOWN: Final = frozenset({"name", "id", "type", *_ARGUMENTS})


def pass_object(reader: Reader, give: Callable[[str], None]) -> Steps[bool]:
    """Pass on one JSON object as it comes. Stops and returns False where it is not JSON or is cut off."""
    value = JsonText(object_only=True)
    while not value.done and (yield from reader.more()):
        give(reader.consume(value.push))
        if value.broken:
            return False
    return value.done


class JsonCall:
    """Reads one call from its `{` on; `read` says whether it is complete.

    Outputs nothing before it knows the name and the `{` of the arguments; then it outputs the arguments as they come.
    Stops reading where the text turns out not to be a call, or is cut off.
    """

    def __init__(self, reader: Reader, sink: PartSink, *, close: str = "", strict: bool = False) -> None:
        """`close` may stand in for the last brace, which small models forget; `strict` allows no other keys."""
        self._reader = reader
        self._sink = sink
        self._close = close
        self._strict = strict
        self._name = ""
        self._begun = False
        self._given = False
        self._early: list[str] = []  # arguments that came before the name

    def read(self) -> Steps[bool]:
        reader = self._reader
        if not (yield from reader.skip("{")):
            return False
        while True:
            yield from reader.spaces()
            key = yield from self._string()
            yield from reader.spaces()
            if not (yield from reader.skip(":")):
                return False
            yield from reader.spaces()
            if not (yield from self._member(key)):
                return False
            yield from reader.spaces()
            if self._close and self._given and (yield from reader.next_is(self._close)):
                return self._end()
            mark = yield from reader.skip(",", "}")
            if mark != ",":
                return mark == "}" and self._end()

    def _member(self, key: str) -> Steps[bool]:
        if key == "name" and not self._name:
            return (yield from self._read_name())
        if key in _ARGUMENTS and not self._given:
            self._given = yield from self._arguments()
            return self._given
        if self._strict and key not in _KNOWN:
            return False
        return (yield from self._other()) != ""

    def _read_name(self) -> Steps[bool]:
        name = yield from self._string()
        if not self._sink.knows(name):
            return False
        self._name = name
        if self._early:
            self._give("")
        return True

    def _arguments(self) -> Steps[bool]:
        first = yield from self._reader.peek()
        if first == "{":
            return (yield from pass_object(self._reader, self._give))
        if first == '"':
            return (yield from self._unwrapped())
        if first != "n" or (yield from self._other()) != "null":
            return False
        self._give("{}")
        return True

    def _unwrapped(self) -> Steps[bool]:
        """Arguments as a string that holds their JSON text."""
        string, value = StringText(), JsonText(object_only=True)
        yield from self._reader.skip('"')
        blank, rest = True, ""
        while not string.done and not string.broken and (yield from self._reader.more()):
            text = self._reader.consume(string.push)
            blank = blank and not text.strip()
            fragment, at = value.push(text) if not value.broken else ("", 0)
            self._give(fragment)
            # Read on to the string's end even if this is no object: where reading stops must not depend on how the text
            # was cut.
            rest += text[at:].strip()
        if not string.done or rest:
            return False
        if blank:
            self._give("{}")
            return True
        return value.done

    def _other(self) -> Steps[str]:
        """A value of another key; "" if it is not a value."""
        value = JsonText()
        out: list[str] = []
        while not value.done and not value.broken and (yield from self._reader.more()):
            out.append(self._reader.consume(value.push))
        return "".join(out) if value.done and not value.broken else ""

    def _string(self) -> Steps[str]:
        """The string; "" if it is not one."""
        string = StringText()
        out: list[str] = []
        if not (yield from self._reader.skip('"')):
            return ""
        while not string.done and not string.broken and (yield from self._reader.more()):
            out.append(self._reader.consume(string.push))
        return "".join(out) if string.done else ""

    def _give(self, fragment: str) -> None:
        self._early.append(fragment)
        if not self._name:
            return
        fragment = "".join(self._early)
        self._early.clear()
        if fragment and not self._begun:
            self._reader.release()
            self._sink.begin(self._name)
            self._begun = True
        self._sink.arguments(fragment)

    def _end(self) -> bool:
        if not self._name:
            return False
        if not self._given:
            self._give("{}")
        self._sink.end()
        return True
