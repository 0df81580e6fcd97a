"""A served model, and how to speak to it: its vocabulary, its chat template, its format."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from services.gateway.formats.detect import detect
from services.gateway.formats.grammars import Composer
from services.gateway.prompts.capabilities import fault, probe
from services.gateway.prompts.rendering import Renderer
from services.gateway.prompts.template import ChatTemplate, TemplateError
from services.gateway.requests.types import Conversation, Tool
from services.gateway.storage.kept_turns import KeptTurn
from shared.fleet.model_names import LATEST
from shared.law.grammar import Grammars
from shared.model.llama.model import Model
from shared.wire.messages import ThinkingLimit

_TAIL: Final = 16  # so many tokens at the end of a prompt may hold the beginning of the thinking


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model that at least one verifier serves and does not drain."""

    name: str
    fingerprint: str
    vocabulary: str  # the key of its vocabulary and chat template
    n_ctx: int  # the smallest of its verifiers: any of them may claim the request
    n_cells: int  # tokens that all its verifiers hold at once
    created: int
    exactness: str
    aliases: tuple[str, ...] = ()  # other names that mean it

    def is_called(self, name: str) -> bool:
        """Whether it has that name."""
        return bool({name, name.removesuffix(LATEST)} & {self.name, *self.aliases})

    @property
    def system_fingerprint(self) -> str:
        """Names the exactness and the vocabulary of the answers."""
        return f"{self.exactness}-{self.fingerprint}"


class Lexicon:
    """A loaded vocabulary with its chat template: messages to token ids, token ids to bytes."""

    def __init__(self, model: Model) -> None:
        self._model = model  # keeps what `vocabulary` points to
        self._vocabulary = model.vocabulary
        self.metadata = self._vocabulary.metadata
        self._hidden = frozenset(self._vocabulary.eog)
        self.n_tokens = self._vocabulary.n_tokens
        self.composer = Composer(Grammars(self._vocabulary))
        self.template = source = self._vocabulary.chat_template()
        self.bos = self._special(self._vocabulary.bos)
        self.eos = self._special(self.metadata("tokenizer.ggml.eos_token_id"))
        template, self.chat_fault = _compiled(source, self.bos, self.eos)
        self.format = detect(source, self._control, template is not None and probe(template).tools)
        # A cache: asking llama.cpp takes longer than the rest of a token's work here.
        self._pieces = {token: mark.encode() for mark in self.format.marks for token in self._single(mark)}
        self._renderer = (
            None
            if template is None
            else Renderer(template, self.format.call_id, self.format.instructions, native=self.format.takes_tools)
        )

    def prompt(
        self,
        conversation: Conversation,
        variables: Mapping[str, object],
        tools: Sequence[Tool] = (),
        turns: Mapping[str, KeptTurn] | None = None,
        check: Callable[[int], None] = lambda characters: None,
    ) -> tuple[int, ...]:
        """The rendered conversation as token ids, with exactly one BOS where the vocabulary wants one.

        Raises `TemplateError`, and whatever `check` raises about the rendered text's length. May take long for long
        prompts: call it off the event loop.
        """
        segments = self._rendering().render(conversation, variables, tools, turns or {})
        check(sum(len(segment) for segment in segments if isinstance(segment, str)))
        tokens: list[int] = []
        for segment in segments:
            tokens += segment if isinstance(segment, tuple) else self._vocabulary.tokenize(segment)
        return self.with_bos(tokens)

    def rendered(self, conversation: Conversation, variables: Mapping[str, object], tools: Sequence[Tool] = ()) -> str:
        """The conversation as text, with calls as the template writes them. Raises `TemplateError`."""
        return "".join(map(str, self._rendering().render(conversation, variables, tools, {})))

    def _rendering(self) -> Renderer:
        if self._renderer is None:
            raise TemplateError(self.chat_fault)
        return self._renderer

    def document(self, content: str | tuple[int, ...]) -> tuple[int, ...]:
        """Text as token ids, with exactly one BOS if the vocabulary wants one; ids stay as they are.

        May take long for long texts: call it off the event loop.
        """
        return self.with_bos(self._vocabulary.tokenize(content)) if isinstance(content, str) else content

    def with_bos(self, tokens: list[int]) -> tuple[int, ...]:
        """The tokens with exactly one BOS where the vocabulary wants one."""
        bos = self._vocabulary.bos
        # Not `add_special`: that would also add an EOS for vocabularies that ask for one.
        if self._vocabulary.add_bos and tokens[:1] != [bos]:
            tokens.insert(0, bos)
        return tuple(tokens)

    def tokenize(self, text: str, *, special: bool = True) -> list[int]:
        """Token ids of the text as it is, without a BOS; `special`: marks such as `<|im_end|>` are tokens.

        May take long for long texts: call it off the event loop.
        """
        return self._vocabulary.tokenize(text, parse_special=special)

    @cached_property
    def longest(self) -> int:
        """The most bytes that one token stands for."""
        return max(map(len, map(self.label, range(self.n_tokens))), default=1)

    def piece(self, token: int) -> bytes:
        """The bytes of a token as they belong to an answer: nothing for control and end-of-generation tokens, except
        for those that mark thinking and tool calls."""
        piece = self._pieces.get(token)
        if piece is None:
            if token in self._hidden or token >= self.n_tokens:
                return b""
            piece = self._pieces[token] = self._vocabulary.piece(token)
        return piece

    def label(self, token: int) -> bytes:
        """The bytes that name a token, also a control token's."""
        # An id beyond the vocabulary would end the process inside llama.cpp, and logs come from outside.
        return self._vocabulary.piece(token, special=True) if token < self.n_tokens else b""

    def opens(self, prompt: Sequence[int]) -> bool:
        """Whether the prompt ends inside the model's thinking: its last beginning of thinking has no end."""
        span = self.format.span
        if span is None:
            return False
        tail = b"".join(map(self.label, prompt[-_TAIL:])).decode(errors="replace").rstrip()
        return tail.endswith(span.start.rstrip())

    def thinking(self, budget: int | None, opened: bool) -> ThinkingLimit | None:
        """How the verifier limits thinking; None without a budget or if the model does not think."""
        span = self.format.span
        if budget is None or span is None:
            return None
        start, end, close = (tuple(self._vocabulary.tokenize(text)) for text in (span.start, span.end, span.close))
        return ThinkingLimit(budget=budget, opened=opened, start=start, end=end, close=close)

    def _single(self, mark: str) -> list[int]:
        """The token that is exactly this mark, if there is one."""
        tokens = self._vocabulary.tokenize(mark)
        return tokens if len(tokens) == 1 else []

    def _control(self, text: str) -> int | None:
        """The control token that is this mark, if there is one."""
        return next((token for token in self._single(text) if token in self._vocabulary.special), None)

    def _special(self, token: int | str | None) -> str:
        number = -1 if token is None else int(token)
        return self.label(number).decode(errors="replace") if 0 <= number < self.n_tokens else ""


def _compiled(source: str | None, bos: str, eos: str) -> tuple[ChatTemplate | None, str]:
    """The template if there is one that compiles; and why the model cannot take messages, empty if it can."""
    if source is None:
        return None, "this model has no chat template, so it cannot take messages"
    try:
        template = ChatTemplate(source, bos=bos, eos=eos)
    except TemplateError as error:
        return None, str(error)
    return template, fault(template)
