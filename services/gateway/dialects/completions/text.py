"""What completions hold beside the answer's text: the echoed prompt, and old-style log-probabilities. Pure."""

from collections.abc import Sequence
from typing import Any

from services.gateway.dialects.completions.request import Text
from services.gateway.dialects.openai_frames import LOWEST_LOGPROB
from services.gateway.generation.choice import CommittedToken
from services.gateway.generation.text import Detokenizer
from services.gateway.models.served_model import Lexicon
from shared.wire.messages import TokenLogprob


def echoed(prompt: Text, lexicon: Lexicon) -> str:
    """The prompt as text."""
    if isinstance(prompt, str):
        return prompt
    detokenizer = Detokenizer(lexicon.piece)
    return "".join(map(detokenizer.push, prompt)) + detokenizer.flush()


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
                lists["token_logprobs"].append(max(piece.logprob.logprob, LOWEST_LOGPROB))
                lists["top_logprobs"].append(self._top(piece.token, piece.logprob))
                lists["text_offset"].append(self._offset)
            self._offset += len(self._detokenizer.push(piece.token))
        return lists

    def _top(self, chosen: int, logprob: TokenLogprob) -> dict[str, float]:
        """The likeliest tokens, and the chosen one in any case."""
        entries = (*logprob.top, *(() if chosen in dict(logprob.top) else ((chosen, logprob.logprob),)))
        return {self._label(token): max(value, LOWEST_LOGPROB) for token, value in entries}

    def _label(self, token: int) -> str:
        """The token's text, or its bytes as OpenAI spells them if they are not text, so that labels are distinct."""
        label = self._lexicon.label(token)
        try:
            return label.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in label)
