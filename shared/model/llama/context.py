"""The KV cache and the decode call. Not thread-safe: one thread owns a `Context`. A decode releases the GIL."""

import ctypes
from typing import Final

import llama_cpp.llama_cpp as C
import numpy as np
import numpy.typing as npt

from shared.model.llama import library
from shared.model.llama.model import Model
from shared.model.llama.sequence_states import SequenceStates
from shared.model.rows import BRANCH_CELLS, MAX_LEAVES, LlamaError, Rows

CACHE_TYPES: Final = {"f32": 0, "f16": 1, "bf16": 30, "q8_0": 8, "q5_1": 7, "q5_0": 6, "q4_1": 3, "q4_0": 2}
# Bytes of 32 numbers in ggml's types (ggml-common.h).
_BYTES_OF_32: Final = {"f32": 128, "f16": 64, "bf16": 64, "q8_0": 34, "q5_1": 24, "q5_0": 22, "q4_1": 20, "q4_0": 18}

MAX_SEQUENCES: Final = 256  # LLAMA_MAX_SEQ in llama-cparams.h


def number_bytes(cache_type_k: str, cache_type_v: str) -> float:
    """Bytes of a number in the cache, the average of keys and values; a type not chosen yet has 16 bits."""
    return sum(_BYTES_OF_32.get(name, 64) for name in (cache_type_k, cache_type_v)) / 64


class Context:
    """The KV cache and the decode call. `unified=False` gives each sequence a stream of its own."""

    def __init__(
        self,
        model: Model,
        *,
        n_ctx: int,
        sequences: int,
        unified: bool,
        threads: int,
        branches: int = 0,
        max_rows: int = 512,
        max_outputs: int = 0,
        swa_full: bool = True,
        cache_type_k: str = "f16",
        cache_type_v: str = "f16",
        flash_attn: bool | None = None,
    ) -> None:
        """`n_ctx` is per sequence; the product is allocated. `flash_attn` None lets llama.cpp choose.

        `branches` is the wanted number for each sequence; there are fewer if llama.cpp has too few ids, and none
        without the unified cache. Their tokens take cells of their own.

        Without `swa_full` the layers of a model with a sliding window keep little more than the window. The end of a
        sequence can still be cut, but continuing from an earlier point may be impossible (`floor`). In the unified
        cache there are then no branches and no copies: llama.cpp reuses a cell that has left its window only if one
        sequence alone holds it.

        A decode has at most `max_outputs` rows with logits (0: all of its rows): llama.cpp keeps space on the device
        for the whole vocabulary's logits of so many, which is 600 KB a row at 152,000 tokens.
        """
        self._window = model.window
        self.can_copy = model.can_roll_back and (swa_full or not unified or not self._window)
        branches = min(branches, MAX_SEQUENCES // sequences - 1) if unified and self.can_copy else 0
        params = C.llama_context_default_params()
        params.n_ctx = (n_ctx + branches * BRANCH_CELLS) * sequences
        params.n_batch = params.n_ubatch = max_rows
        params.n_seq_max = sequences * (1 + branches)
        # llama.cpp always reserves one output for each sequence, and stops the process if that is too many.
        params.n_outputs_max = max(min(max_outputs or max_rows, max_rows), params.n_seq_max)
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified = unified
        params.swa_full = swa_full
        params.flash_attn_type = -1 if flash_attn is None else int(flash_attn)
        params.type_k, params.type_v = CACHE_TYPES[cache_type_k], CACHE_TYPES[cache_type_v]
        params.no_perf = True
        library.forget_errors()
        self.handle = C.llama_init_from_model(model.handle, params)
        if not self.handle:
            raise LlamaError(
                f"{model.path.name}: no context of {sequences} x {n_ctx} tokens, {cache_type_k}/{cache_type_v} cache:"
                f" {library.reason() or 'llama.cpp does not say why'}"
            )
        self.n_ctx = int(C.llama_n_ctx_seq(self.handle)) if not unified else n_ctx
        self.sequences = sequences
        self.branches = branches
        self.unified = unified
        self.max_rows = max_rows
        self.max_outputs = int(params.n_outputs_max)
        self.can_roll_back = model.can_roll_back
        self.n_vocab = model.vocabulary.n_tokens
        self._memory = C.llama_get_memory(self.handle)
        # llama.cpp's state of a model with a sliding window has only the window, even where the cache still has more.
        whole = model.can_roll_back and not self._window
        self.states = SequenceStates(self.handle, self._memory) if whole else None
        self._tokens = np.zeros(max_rows, np.int32)
        self._positions = np.zeros(max_rows, np.int32)
        self._sequence_counts = np.ones(max_rows, np.int32)
        self._sequence_ids = np.zeros((max_rows, MAX_LEAVES), np.int32)
        self._outputs = np.zeros(max_rows, np.int8)
        addresses = self._sequence_ids.ctypes.data + np.arange(max_rows, dtype=np.uint64) * 4 * MAX_LEAVES
        self._sequence_pointers = np.ascontiguousarray(addresses, np.uint64)
        self._batch = C.llama_batch(
            0,
            ctypes.cast(self._tokens.ctypes.data, ctypes.POINTER(C.llama_token)),
            None,
            ctypes.cast(self._positions.ctypes.data, ctypes.POINTER(C.llama_pos)),
            ctypes.cast(self._sequence_counts.ctypes.data, ctypes.POINTER(ctypes.c_int32)),
            ctypes.cast(self._sequence_pointers.ctypes.data, ctypes.POINTER(ctypes.POINTER(C.llama_seq_id))),
            ctypes.cast(self._outputs.ctypes.data, ctypes.POINTER(ctypes.c_int8)),
        )

    def decode(self, rows: Rows) -> None:
        """Run the model over `rows` and return when the device has computed them.

        `llama_decode` returns early on a device that works in the background, so a clock read after it would miss most
        of the time. Waiting here costs nothing: callers read the logits next, and other threads run meanwhile, because
        the call releases the GIL. Raises `LlamaError`; the cache is then unchanged for these rows.
        """
        count = len(rows)
        if not 0 < count <= self.max_rows:
            raise LlamaError(f"a decode takes 1 to {self.max_rows} rows, not {count}")
        if sum(rows.outputs) > self.max_outputs:
            raise LlamaError(f"a decode gives logits of at most {self.max_outputs} rows, not {sum(rows.outputs)}")
        self._tokens[:count] = rows.tokens
        self._positions[:count] = rows.positions
        self._outputs[:count] = rows.outputs
        for index, ids in enumerate(rows.sequences):
            self._sequence_counts[index] = len(ids)
            self._sequence_ids[index, : len(ids)] = ids
        if self._tokens[:count].min() < 0 or self._tokens[:count].max() >= self.n_vocab:
            raise LlamaError("a token id lies outside the vocabulary")
        if self._positions[:count].max() >= self.n_ctx:
            raise LlamaError(f"a position lies beyond the context of {self.n_ctx} tokens")
        self._batch.n_tokens = count
        status = C.llama_decode(self.handle, self._batch)
        if status != 0:
            raise LlamaError(f"llama_decode failed with status {status} on {count} rows")
        if self.states is not None:
            self.states.copying = False
        C.llama_synchronize(self.handle)

    @property
    def reused_graphs(self) -> int:
        """How many graphs llama.cpp has kept from one batch to the next.

        It keeps one if the numbers of rows, of rows with logits and of sequences are the same, and the cells that are
        read, rounded up to 256.
        """
        return int(C.llama_perf_context(self.handle).n_reused)

    def use_threads(self, count: int) -> None:
        """Compute the next decodes with `count` threads of the CPU."""
        C.llama_set_n_threads(self.handle, count, count)

    def logits(self, row: int) -> npt.NDArray[np.float32]:
        """Row `row`'s logits, float32 of the vocabulary's size; a view that the next decode overwrites."""
        pointer = C.llama_get_logits_ith(self.handle, row)
        if not pointer:
            raise LlamaError(f"row {row} of the last decode has no logits")
        values = (ctypes.c_float * self.n_vocab).from_address(ctypes.addressof(pointer.contents))
        return np.ndarray(self.n_vocab, np.float32, buffer=memoryview(values))

    def floor(self, sequence: int) -> int:
        """The least length to which the sequence can be cut and then be continued, beside 0.

        0 if all tokens are still there. llama.cpp may overwrite tokens that left a sliding window, even while it has
        empty cells, and then attends to the remaining ones: only this value shows it.
        """
        first = C.llama_memory_seq_pos_min(self._memory, sequence) if self._window else 0
        return int(first) + self._window - 1 if first > 0 else 0

    def truncate(self, sequence: int, length: int) -> int:
        """Forget everything of `sequence` from position `length` on. Returns how many tokens it holds then: `length`.

        Or 0, if a sliding window has lost tokens to which the next token would attend.
        """
        held = length if self.floor(sequence) <= length <= self._end(sequence) else 0
        self._drop(sequence, held)
        return held

    def _drop(self, sequence: int, held: int) -> None:
        """Forget everything from position `held` on. llama.cpp goes through all cells for that, if there is any."""
        if held and not self._window and C.llama_memory_seq_pos_max(self._memory, sequence) < held:
            return
        if not C.llama_memory_seq_rm(self._memory, sequence, held, -1):
            raise LlamaError(f"this model cannot drop the tokens of sequence {sequence} from {held} on")

    def clear(self) -> None:
        """Forget all sequences, and set the memory of their keys and values to zero."""
        C.llama_memory_clear(self._memory, True)

    def _end(self, sequence: int) -> int:
        """The number of tokens that the sequence holds; 0 if its window may have been emptied."""
        return int(C.llama_memory_seq_pos_max(self._memory, sequence)) + 1 if self._window else self.n_ctx

    def copy(self, source: int, target: int, length: int, start: int = 0) -> int:
        """Make `target`, which holds the first `start` tokens of `source`, hold the first `length` of them.

        Returns how many tokens it holds then: `length`, or 0 as `truncate` does.
        """
        if not self.can_copy:
            raise LlamaError("sequences of a cache that keeps only a sliding window share no tokens")
        if self.unified:
            self._drop(target, start)
            C.llama_memory_seq_cp(self._memory, source, target, start, length)
            return self.truncate(target, length) if self._window else length
        if start:
            raise LlamaError("only the unified cache copies a part of a sequence")
        C.llama_memory_seq_rm(self._memory, target, -1, -1)
        # In the streams layout a partial copy fails an assert, so copy whole and drop the tail.
        C.llama_memory_seq_cp(self._memory, source, target, -1, -1)
        if self.states is not None:
            self.states.copying = True
        return self.truncate(target, length)

    def close(self) -> None:
        if self.handle:
            C.llama_free(self.handle)
            self.handle = None
