"""The rows of one decode: verifiers and drafters fill them, and `shared.model.llama` decodes them. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

BRANCH_CELLS: Final = 8  # cells per branch beyond the context; a whole tree has at most about thirty rows
MAX_LEAVES: Final = 8  # sequence ids of one row; few, because llama.cpp's seq_cp and seq_rm scan all cells


class LlamaError(RuntimeError):
    """llama.cpp refused; the message says what we asked for."""


class Rows:
    """The rows of one decode, in order. A row is one token at one position of one or more sequences."""

    __slots__ = ("outputs", "positions", "sequences", "tokens")

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.positions: list[int] = []
        self.sequences: list[tuple[int, ...]] = []
        self.outputs: list[bool] = []

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, token: int, position: int, sequences: tuple[int, ...], output: bool) -> int:
        """Append a row and return its index."""
        self.tokens.append(token)
        self.positions.append(position)
        self.sequences.append(sequences)
        self.outputs.append(output)
        return len(self.tokens) - 1

    def extend(self, tokens: Iterable[int], position: int, sequence: int, output_last: bool = False) -> None:
        """Append a run of tokens of one sequence from `position` on, without logits or with those of the last row."""
        for token in tokens:
            self.add(token, position, (sequence,), False)
            position += 1
        if output_last:
            self.outputs[-1] = True

    @property
    def shape(self) -> "DecodeShape":
        return DecodeShape(len(self), sum(self.outputs), len(set().union(*self.sequences)))


@dataclass(frozen=True, slots=True)
class DecodeShape:
    """What a decode has in common with the one before if llama.cpp takes its graph again (`llm_graph_params` in
    llama-graph.h)."""

    rows: int
    outputs: int
    sequences: int  # distinct ones
