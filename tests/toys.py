"""Toy partners that make logic fast: a target whose logits are a hash of the whole prefix, and a plain loop over it."""

import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shared.law import prefix, sampling
from shared.law.history import History
from shared.law.sampling import Logits
from shared.model.rows import MAX_LEAVES, LlamaError, Rows
from shared.model.target import State, States
from shared.wire.messages import DrafterCard, Job, Sampling

VOCABULARY = 64
EOG = 1
MARK = 63
DEFAULT_SAMPLING = Sampling(seed=11, logit_bias=((EOG, -100.0),))  # answers that do not end by themselves


def logits_after(tokens: Sequence[int], n_vocab: int = VOCABULARY, sharpness: float = 2.0) -> Logits:
    """The toy model: logits that depend on every token of the prefix and on nothing else."""
    seed = prefix.extend_all(prefix.EMPTY, tokens)
    return (np.random.default_rng(seed).standard_normal(n_vocab) * sharpness).astype(np.float32)


class ToyVocabulary:
    """Texts for the toy's tokens: characters of JSON, some of its words, a mark, and padding without a text."""

    n_tokens = VOCABULARY
    eog: tuple[int, ...] = (EOG,)
    special = frozenset({EOG, MARK})

    def __init__(self) -> None:
        words = [*'{}[]":, \n', *string.digits, *string.ascii_lowercase, '{"', '":', '": ', '", "', ": ", ", "]
        words += ["na", "me", "age", "true", "false"]
        self._texts: dict[int, bytes] = dict(enumerate((word.encode() for word in words), start=2))
        self._tokens = {text: token for token, text in self._texts.items()}
        assert max(self._texts) < MARK

    def piece(self, token: int, *, special: bool = False) -> bytes:
        if token in self.special:
            return (b"<end>" if token == EOG else b"<mark>") if special else b""
        return self._texts.get(token, b"")

    def tokenize(self, text: str, *, parse_special: bool = True) -> list[int]:
        """The longest token first."""
        data, tokens, at = text.encode(), [], 0
        longest = max(map(len, self._tokens))
        while at < len(data):
            size = next(size for size in range(longest, 0, -1) if data[at : at + size] in self._tokens)
            tokens.append(self._tokens[data[at : at + size]])
            at += size
        return tokens

    def text(self, tokens: Sequence[int]) -> str:
        return b"".join(map(self.piece, tokens)).decode()

    def texts(self) -> list[bytes]:
        return [self.piece(token, special=True) for token in range(self.n_tokens)]


class ToyTarget:
    """Checks what llama.cpp would abort on, or compute wrongly without a word: positions without gaps, free cells,
    known sequences, and tokens that a sliding window still holds.
    """

    def __init__(
        self,
        n_ctx: int = 256,
        sequences: int = 4,
        max_rows: int = 64,
        unified: bool = True,
        sharpness: float = 2.0,
        took: Callable[[int], object] = lambda rows: None,
        copies: Callable[[], object] = lambda: None,
        branches: int = 0,
        model: Callable[[Sequence[int]], Logits] | None = None,
        window: int = 0,
    ) -> None:
        """A fake clock can move when `took` is told the rows of a decode, and when `copies` is told of a copy; `model`
        gives logits of its own.

        With a `window` a decode forgets what its first row does not see.
        """
        self._took = took
        self._copies = copies
        self.n_ctx = n_ctx
        self.n_vocab = VOCABULARY
        self.sequences = sequences
        self.max_rows = max_rows
        self.can_roll_back = True
        self.can_copy = not window
        self.states: States | None = None if window else self
        self.saves = 0  # states that were copied out
        self.copied = 0  # tokens that sequences got from others
        self.unified = unified
        self.branches = branches
        self.cells: list[list[int]] = [[] for _ in range(sequences * (1 + branches))]
        self.decodes: list[Rows] = []
        self.reused_graphs = 0
        self.threads: list[int] = []  # what it was told to compute with, in order
        self.cleared = 0  # times that the whole cache was set to zero
        self._window = window
        self._first = [0] * len(self.cells)  # the first position of each sequence that is not forgotten
        self._logits: dict[int, Logits] = {}
        self._model = model or (lambda tokens: logits_after(tokens, sharpness=sharpness))

    def decode(self, rows: Rows) -> None:
        if not 0 < len(rows) <= self.max_rows:
            raise LlamaError(f"{len(rows)} rows")
        self.reused_graphs += bool(self.decodes) and rows.shape == self.decodes[-1].shape
        self.decodes.append(rows)
        self._took(len(rows))
        self._logits = {}
        if self._window:
            self._forget({sequence for ids in rows.sequences for sequence in ids})
        for row, (token, position, ids, output) in enumerate(
            zip(rows.tokens, rows.positions, rows.sequences, rows.outputs, strict=True)
        ):
            assert 0 < len(set(ids)) == len(ids) <= MAX_LEAVES
            assert len(ids) == 1 or self.unified, "a row of several sequences needs the unified cache"
            cells = self.cells[ids[0]]
            assert position == len(cells) < self.n_ctx, "positions follow each other"
            for other in ids[1:]:
                assert self.cells[other] == cells, "sequences that share a row share their past"
                self.cells[other].append(token)
            cells.append(token)
            if output:
                self._logits[row] = self._model(cells)

    def use_threads(self, count: int) -> None:
        self.threads.append(count)

    def logits(self, row: int) -> Logits:
        return self._logits[row]

    def _forget(self, sequences: set[int]) -> None:
        """Positions that no token from here on sees."""
        for sequence in sequences:
            oldest = max(0, len(self.cells[sequence]) - self._window + 1)
            assert self._first[sequence] <= oldest, "the next token sees what was forgotten"
            self._first[sequence] = oldest

    def floor(self, sequence: int) -> int:
        first = self._first[sequence]
        return first + self._window - 1 if first else 0

    def truncate(self, sequence: int, length: int) -> int:
        held = length if length >= self.floor(sequence) else 0
        del self.cells[sequence][held:]
        if not held:
            self._first[sequence] = 0
        return held

    def clear(self) -> None:
        self.cleared += 1
        self.cells = [[] for _ in self.cells]
        self._first = [0] * len(self.cells)

    def copy(self, source: int, target: int, length: int, start: int = 0) -> int:
        assert self.can_copy
        assert self.cells[target][:start] == self.cells[source][:start]
        self.cells[target] = self.cells[source][:length]
        self.copied += length - start
        self._copies()
        return length

    def size(self, sequence: int) -> int:
        return 4 * len(self.cells[sequence])

    def save(self, sequence: int) -> State | None:
        self.saves += 1
        return np.array(self.cells[sequence], np.int32).view(np.uint8)

    def restore(self, sequence: int, state: State) -> bool:
        self.cells[sequence] = state.view(np.int32).tolist()
        return True


def breaking(at: list[int], kind: float) -> Callable[[Sequence[int]], Logits]:
    """The toy model, except that its logits after the context `at` are broken."""

    def model(tokens: Sequence[int]) -> Logits:
        logits = logits_after(tokens)
        if list(tokens) == at:
            logits[40] = kind
        return logits

    return model


def plain_answer(
    job: Job,
    eog: Sequence[int] = (EOG,),
    n_ctx: int = 256,
    sharpness: float = 2.0,
    mask: Callable[[list[int]], sampling.Mask | None] = lambda output: None,
) -> list[int]:
    """What the toy target says to a job, one token at a time and with no engine at all; `mask` by the output so far."""
    context = list(job.prompt)
    output: list[int] = []
    history = History(job.prompt)
    while len(output) < job.max_tokens and len(context) < n_ctx:
        law = sampling.law(logits_after(context, sharpness=sharpness), job.sampling, history, mask(output))
        token = sampling.draw(law, job.sampling.seed, len(output)).token
        if token in eog:
            break
        context.append(token)
        output.append(token)
        history.push(token)
    return output


def job(
    name: str = "r1",
    prompt: Sequence[int] = (5, 6, 7),
    max_tokens: int = 24,
    sampling: Sampling = DEFAULT_SAMPLING,
    **options: Any,
) -> Job:
    """A job with a temperature-1 law unless said otherwise."""
    return Job(request_id=name, model="toy", prompt=tuple(prompt), sampling=sampling, max_tokens=max_tokens, **options)


def drafter_card(name: str, kind: str = "model", model: str = "m", capacity: int = 8) -> DrafterCard:
    """The card of a drafter that fits any target."""
    return DrafterCard(
        id=name,
        host="h",
        pid=1,
        kind=kind,
        model=model,
        fingerprint="",
        vocabulary="",
        n_vocab=VOCABULARY,
        device="cpu",
        capacity=capacity,
        sessions=0,
        tokens_per_second=0.0,
    )
