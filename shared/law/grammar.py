"""Grammars over a vocabulary: which tokens may follow a prefix of an answer. The only module that touches llguidance.

Every end-of-generation token counts as the end, so all of them are allowed exactly where the grammar may end. Where the
grammar forces a text, only the canonical tokens of that text are allowed. Both depend on the prefix alone. Clients send
grammars, so their size and work are bounded, and a child process compiles each of them first. Library: llguidance
(Moskal et al., github.com/guidance-ai/llguidance).
"""

import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, regex_to_lark
from llguidance.gbnf_to_lark import gbnf_to_lark

from shared.law.sampling import Mask
from shared.law.vetting import VETTING, NoVerdict

MAX_GRAMMAR_BYTES: Final = 1 << 20
COMPILE_S: Final = 3.0  # ordinary grammars take milliseconds; one that takes this long may never end
# The string formats of JSON Schema that llguidance enforces; it refuses schemas with others.
FORMATS: Final = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"}
)
STEPS_AHEAD: Final = 32  # forced tokens returned at once: as many as a round may take

# Recursion over a chain of rules or references takes some 10 KB a link; pages of a stack count only once touched.
STACK_BYTES: Final = 512 << 20
# Per step some ten milliseconds at most, so that one hostile grammar cannot stop the rounds of others.
_LIMITS: Final = LLParserLimits(
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=100_000,
    step_max_items=50_000,
    max_lexer_states=50_000,
    max_grammar_size=500_000,
    verbose_errors=False,
)
_SILENT: Final = 0


class GrammarError(ValueError):
    """A grammar that cannot be used, with the reason in llguidance's words."""


class Lexemes(Protocol):
    """What a grammar needs of a vocabulary. `special` tokens stand for no text: a grammar refers to them as
    `<name>`."""

    @property
    def n_tokens(self) -> int: ...
    @property
    def eog(self) -> tuple[int, ...]: ...
    @property
    def special(self) -> frozenset[int]: ...
    def piece(self, token: int, *, special: bool = False) -> bytes: ...
    def tokenize(self, text: str, *, parse_special: bool = True) -> list[int]: ...


class Matcher:
    """A position in a grammar: tokens are pushed and popped again.

    `failed` means that the grammar's limits were exceeded or a token was pushed that it does not allow; results after
    that have no meaning.
    """

    def __init__(self, matcher: LLMatcher, n_tokens: int) -> None:
        self._matcher = matcher
        self._n_tokens = n_tokens

    @property
    def failed(self) -> bool:
        return self._matcher.is_error()

    @property
    def complete(self) -> bool:
        """Whether the grammar is satisfied and only an end may follow."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    @property
    def forced(self) -> list[int]:
        """The next tokens, if only these may come; the first is certain, the others almost."""
        return self._matcher.compute_ff_tokens()[:STEPS_AHEAD]

    def allows(self, tokens: Sequence[int]) -> int:
        """How many of these tokens may come next, one after the other."""
        return self._matcher.validate_tokens(list(tokens))

    def push(self, token: int) -> bool:
        """Step over a token; False if it is not allowed, and the matcher has then failed."""
        return self._matcher.consume_token(token)

    def pop(self, count: int) -> None:
        """Take back the last `count` tokens."""
        self._matcher.rollback(count)

    def mask(self) -> Mask:
        """Which tokens may come next, of the vocabulary's size; none at a dead end of the grammar."""
        bits = np.zeros((self._n_tokens + 31) // 32, np.uint32)
        self._matcher.unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)
        if self._matcher.is_error():
            bits[:] = 0
        return np.unpackbits(bits.view(np.uint8), count=self._n_tokens, bitorder="little").view(np.bool_)

    def copy(self) -> "Matcher":
        """An independent matcher at the same position."""
        return Matcher(self._matcher.deep_copy(), self._n_tokens)


class Grammars:
    """Compiles grammars for one vocabulary. Thread-safe; prepares the vocabulary at the first use."""

    def __init__(self, vocabulary: Lexemes) -> None:
        self._vocabulary = vocabulary
        self._making = threading.Lock()
        self._tokenizer: LLTokenizer | None = None

    def compile(self, grammar: str, within_s: float = COMPILE_S) -> Matcher:
        """The start of a grammar in Lark or in llguidance's JSON form. Raises `GrammarError`.

        Takes milliseconds, at the first call some tenths of a second: call it off the event loop. A compilation that
        takes longer than `within_s` is given up, and leaves nothing running.
        """
        _vet(grammar, within_s)
        with self._making:
            if self._tokenizer is None:
                self._tokenizer = _tokenizer(self._vocabulary)
        tokenizer = self._tokenizer
        matcher = _on_a_deep_stack(lambda: LLMatcher(tokenizer, grammar, log_level=_SILENT, limits=_LIMITS))
        if matcher.is_error():
            raise GrammarError(matcher.get_error())
        return Matcher(matcher, tokenizer.vocab_size)


def check_size(grammar: str) -> None:
    """Raises `GrammarError` if the text is longer than any grammar may be."""
    if len(grammar.encode(errors="replace")) > MAX_GRAMMAR_BYTES:
        raise GrammarError(f"the grammar is longer than {MAX_GRAMMAR_BYTES} bytes")


def refusal(grammar: str, within_s: float = COMPILE_S) -> str:
    """Why a grammar cannot be compiled for any vocabulary, in llguidance's words; empty if it can.

    Raises `GrammarError` for one that is too large, or takes longer than `within_s`.
    """
    return _vet(grammar, within_s)


def _vet(grammar: str, within_s: float) -> str:
    """Have a child compile the grammar, so that it ends in this process too."""
    check_size(grammar)
    try:
        return VETTING.refusal(grammar, within_s)
    except NoVerdict as error:
        raise GrammarError(str(error)) from None


def validated(grammar: str) -> str:
    """`refusal`, computed here: it may take for ever, and needs a deep stack."""
    failed, messages = LLMatcher.validate_grammar_with_warnings(grammar, limits=_LIMITS)
    return messages[0] if failed else ""


def lark_of_regex(pattern: str) -> str:
    """A Lark grammar of the whole texts that a regular expression (Rust's syntax) matches."""
    return f"start: /{regex_to_lark(pattern)}/"


_GBNF_WORD: Final = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|#[^\n]*|[\w-]+')


def lark_of_gbnf(source: str) -> str:
    """A Lark grammar of what a GBNF grammar (llama.cpp's `grammars/README.md`) matches. Raises `GrammarError`."""
    check_size(source)
    # The converter makes a rule `start` of the rule `root`.
    renamed = _GBNF_WORD.sub(lambda word: "start-rule" if word[0] == "start" else word[0], source)
    try:
        return gbnf_to_lark(renamed)
    except RecursionError:
        raise GrammarError("the grammar is too deeply nested") from None
    except Exception as error:  # the converter raises bare ones
        raise GrammarError(str(error)) from None


T = TypeVar("T")


def _on_a_deep_stack(task: Callable[[], T]) -> T:
    """Run work of llguidance in a thread whose stack is large enough for any grammar of our size.

    Raises what the task raises.
    """
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(task())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="grammar", daemon=True)
    with _starting:
        before = threading.stack_size(STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


_starting: Final = threading.Lock()  # the stack size is set for the whole process while the thread starts


class _Encoder:
    """A vocabulary in llguidance's form: bytes per token, and canonical tokens of a text."""

    bos_token_id: Final = None
    is_tokenizer_wrapper: Final = True

    def __init__(self, vocabulary: Lexemes) -> None:
        self._vocabulary = vocabulary
        self.eos_token_id = vocabulary.eog[0]
        self.special_token_ids = sorted(vocabulary.special | set(vocabulary.eog))
        self.tokens = [vocabulary.piece(token, special=True) for token in range(vocabulary.n_tokens)]
        self._texts = self.tokens.copy()
        for token in self.special_token_ids:
            self._texts[token] = b""
        self.greedy: LLTokenizer | None = None

    def __call__(self, data: str | bytes) -> list[int]:
        """The tokens of a text in the middle of other text; their bytes are exactly the text's."""
        text = data.encode() if isinstance(data, str) else data
        for before in ("", "\n"):
            tokens = self._without(before.encode(), self._tokenize(before + text.decode(errors="replace")))
            if tokens is not None and b"".join(self._texts[token] for token in tokens) == text:
                return tokens
        # The text spells a special token, or the vocabulary normalises it.
        return self.greedy.greedy_tokenize(text.decode(errors="replace")) if self.greedy is not None else []

    def _tokenize(self, text: str) -> list[int]:
        return self._vocabulary.tokenize(text, parse_special=False)

    def _without(self, before: bytes, tokens: list[int]) -> list[int] | None:
        """The tokens after those that end with `before`, because SentencePiece puts a space before a text's start."""
        count, text = 0, b""
        while before and not text.endswith(before):
            if count == len(tokens):
                return None
            text += self._texts[tokens[count]]
            count += 1
        return tokens[count:]


def _tokenizer(vocabulary: Lexemes) -> LLTokenizer:
    encoder: Any = _Encoder(vocabulary)
    tokenizer = LLTokenizer(encoder, eos_token=list(vocabulary.eog))
    encoder.greedy = tokenizer
    return tokenizer
