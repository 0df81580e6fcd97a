"""What clients may read of an answer's tokens: ids, sources and log-probabilities. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from services.gateway.formats.parts import Part, PartParser, Text
from services.gateway.generation.choice import CommittedToken
from services.gateway.generation.text import Detokenizer
from services.gateway.models.served_model import Lexicon
from services.gateway.requests.fields import GenerationFields
from shared.wire.messages import TokenLogprob

# JSON has no infinity; this is what OpenAI documents for "as good as impossible".
_LOWEST: Final = -9999.0


def traces(request: GenerationFields, pieces: Sequence[CommittedToken]) -> dict[str, Any]:
    """The tokens' ids and sources, if the request asked for them."""
    asked: dict[str, Any] = {}
    if request.return_token_ids:
        asked["token_ids"] = [piece.token for piece in pieces]
    if request.speculative_trace:
        asked["trace"] = [piece.trace for piece in pieces]
    return asked


def entries(
    pieces: Sequence[CommittedToken], lexicon: Lexicon, names: Sequence[str] = ("token", "bytes", "logprob")
) -> list[dict[str, Any]]:
    """One entry per token that the verifier gave a log-probability for, thinking and calls included.

    The members of an entry have the order of `names`.
    """

    def entry(token: int, logprob: float) -> dict[str, Any]:
        label = lexicon.label(token)
        values = {"token": label.decode(errors="replace"), "bytes": list(label), "logprob": max(logprob, _LOWEST)}
        return {name: values[name] for name in names}

    return [
        {**entry(piece.token, piece.logprob.logprob), "top_logprobs": [entry(*one) for one in piece.logprob.top]}
        for piece in pieces
        if piece.logprob is not None
    ]


class LegacyLogprobs:
    """Log-probabilities of one choice, token by token: `text_offset` counts characters from the beginning of its text.

    The offset is where a token's own text begins. A character of several tokens begins with the first of them.
    """

    def __init__(self, lexicon: Lexicon) -> None:
        self._lexicon = lexicon
        self._detokenizer = Detokenizer(lexicon.piece)
        self._offset = 0

    def take(self, pieces: Sequence[CommittedToken]) -> dict[str, Any]:
        """The lists for the next tokens, as far as the verifier gave log-probabilities."""
        lists: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for piece in pieces:
            if piece.logprob is not None:
                lists["tokens"].append(self._label(piece.token))
                lists["token_logprobs"].append(max(piece.logprob.logprob, _LOWEST))
                lists["top_logprobs"].append(self._top(piece.token, piece.logprob))
                lists["text_offset"].append(self._offset)
            self._offset += len(self._detokenizer.push(piece.token))
        return lists

    def _top(self, chosen: int, logprob: TokenLogprob) -> dict[str, float]:
        """The likeliest tokens, and the chosen one in any case."""
        entries = (*logprob.top, *(() if chosen in dict(logprob.top) else ((chosen, logprob.logprob),)))
        return {self._label(token): max(value, _LOWEST) for token, value in entries}

    def _label(self, token: int) -> str:
        """The token's text, or its bytes as OpenAI spells them if they are not text, so that labels are distinct."""
        label = self._lexicon.label(token)
        try:
            return label.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in label)


class TextLogprobs:
    """The entries by message: the first text of an answer is message 0, text after other parts begins another.

    A token without text of its own (half a character, the end of the answer) counts with the text around it. Tokens of
    thinking, calls and their marks have no message. A parser of its own reads the tokens one by one, so that the result
    does not depend on how commits were cut.
    """

    def __init__(self, parser: PartParser, lexicon: Lexicon) -> None:
        self._parser = parser
        self._lexicon = lexicon
        self._message = -1
        self._open = False  # whether text goes on
        self._waiting: list[CommittedToken] = []
        self._ready: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)

    def push(self, piece: CommittedToken) -> None:
        """Take the next token."""
        self._waiting.append(piece)
        self.flush(piece.text)

    def flush(self, text: str) -> None:
        """Add text that belongs to earlier tokens."""
        for part in self._parser.push(text):
            self._sort(part)

    def finish(self) -> None:
        """No token follows."""
        for part in self._parser.finish():
            self._sort(part)
        if self._open:
            self._give(self._waiting)

    def take(self, message: int) -> list[dict[str, Any]]:
        """The entries of this message's tokens that became certain since the last call."""
        return self._ready.pop(message, [])

    def _sort(self, part: Part) -> None:
        if not isinstance(part, Text):
            self._open = False
            self._waiting = self._waiting[-1:]  # one token may end a mark and begin a text
            return
        if not self._open:
            self._open = True
            self._message += 1
            self._waiting = self._last(len(part.text.encode()))
        self._give(self._waiting)
        self._waiting = []

    def _last(self, size: int) -> list[CommittedToken]:
        """The fewest of the waiting tokens, counted from the last, that hold so many bytes; those before are marks."""
        count = held = 0
        while held < size and count < len(self._waiting):
            count += 1
            held += len(self._lexicon.piece(self._waiting[-count].token))
        return self._waiting[len(self._waiting) - count :]

    def _give(self, pieces: list[CommittedToken]) -> None:
        self._ready[self._message] += entries(pieces, self._lexicon)
