"""Tokens, their texts, and the chat template."""

import ctypes
from functools import cached_property
from typing import Any, Final

import llama_cpp.llama_cpp as C

from shared.model.safe_cuts import PIECE, CutMarks

# Which tokens llama.cpp looks for before it tokenises what lies between them (llama-vocab.cpp).
_SPECIAL: Final = C.LLAMA_TOKEN_ATTR_CONTROL | C.LLAMA_TOKEN_ATTR_USER_DEFINED | C.LLAMA_TOKEN_ATTR_UNKNOWN


class Vocabulary:
    """Tokens, text and the chat template of a model. Valid while its `Model` is open."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._vocab = C.llama_model_get_vocab(model)
        self.n_tokens = int(C.llama_vocab_n_tokens(self._vocab))
        self.bos = int(C.llama_vocab_bos(self._vocab))
        self.add_bos = bool(C.llama_vocab_get_add_bos(self._vocab))
        self.eog = tuple(token for token in range(self.n_tokens) if C.llama_vocab_is_eog(self._vocab, token))

    @cached_property
    def special(self) -> frozenset[int]:
        """Tokens that stand for no text: control tokens, and tokens of a model's own that look like `<mark>`."""
        return frozenset(filter(self._is_special, range(self.n_tokens)))

    def _is_special(self, token: int) -> bool:
        attributes = C.llama_vocab_get_attr(self._vocab, token)
        if attributes & C.LLAMA_TOKEN_ATTR_CONTROL:
            return True
        text = self.piece(token, special=True)
        return bool(attributes & C.LLAMA_TOKEN_ATTR_USER_DEFINED) and text[:1] == b"<" and text[-1:] == b">"

    def tokenize(self, text: str, *, add_special: bool = False, parse_special: bool = True) -> list[int]:
        """Token ids of `text`; `add_special` adds the model's BOS, `parse_special` reads `<|…|>` as tokens.

        Takes time linear in the length of any text, except for `add_special`.
        """
        if add_special or len(text) <= PIECE:
            return self._tokenize(text, add_special, parse_special)
        marks = self._marks if parse_special else self._own_marks
        return [token for piece in marks.cut(text) for token in self._tokenize(piece, False, parse_special)]

    def _tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        data = text.encode()
        size = len(data) + 8
        while True:
            tokens = (C.llama_token * size)()
            count = C.llama_tokenize(self._vocab, data, len(data), tokens, size, add_special, parse_special)
            if count >= 0:
                return list(tokens[:count])
            size = -count

    @cached_property
    def _marks(self) -> CutMarks:
        """The marks of text in which all special tokens count."""
        return self._marks_with(C.LLAMA_TOKEN_ATTR_CONTROL | C.LLAMA_TOKEN_ATTR_USER_DEFINED)

    @cached_property
    def _own_marks(self) -> CutMarks:
        """The marks of text in which only the model's own tokens count, not control tokens."""
        return self._marks_with(C.LLAMA_TOKEN_ATTR_USER_DEFINED)

    def _marks_with(self, wanted: int) -> CutMarks:
        special, marks = [], []
        for token in range(self.n_tokens):
            attributes = C.llama_vocab_get_attr(self._vocab, token)
            if attributes & _SPECIAL:
                text = (C.llama_vocab_get_text(self._vocab, token) or b"").decode(errors="replace")
                special.append(text)
                # A token with RSTRIP takes the white space after it.
                if attributes & wanted and not attributes & C.LLAMA_TOKEN_ATTR_RSTRIP:
                    marks.append(text)
        return CutMarks(special, marks)

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes of a token; control tokens are empty unless `special`."""
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            count = C.llama_token_to_piece(self._vocab, token, buffer, size, 0, special)
            if count >= 0:
                return buffer.raw[:count]
            size = -count

    def texts(self) -> list[bytes]:
        """Every token's raw text as the model file has it: for comparing two vocabularies."""
        return [C.llama_vocab_get_text(self._vocab, token) or b"" for token in range(self.n_tokens)]

    def metadata(self, key: str) -> str | None:
        """What the model file says under this GGUF key, as text; None if it says nothing."""
        size = 4096
        while True:
            buffer = ctypes.create_string_buffer(size)
            count = int(C.llama_model_meta_val_str(self._model, key.encode(), buffer, size))
            if count < 0:
                return None
            if count < size:
                return buffer.raw[:count].decode(errors="replace")
            size = count + 1

    def chat_template(self) -> str | None:
        """The model's chat template (Jinja), or None."""
        text = C.llama_model_chat_template(self._model, None)
        return text.decode(errors="replace") if text else None
