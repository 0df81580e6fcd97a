"""The only module that touches llama_cpp: load a model, put rows in, take logits out, manage sequences.

A failed assert inside ggml kills the process, so ranges are checked here before every call. Not thread-safe: one
thread owns a `Context`. `llama_decode` releases the GIL. Upstream: llama.cpp's `include/llama.h`.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import llama_cpp.llama_cpp as C
import numpy as np
import numpy.typing as npt
import structlog

from shared.devices import CPU, available_memory
from shared.marks import PIECE, Marks
from shared.rows import BRANCH_CELLS, MAX_LEAVES, LlamaError, Rows

logger = structlog.get_logger()

CACHE_TYPES: Final = {"f32": 0, "f16": 1, "bf16": 30, "q8_0": 8, "q5_1": 7, "q5_0": 6, "q4_1": 3, "q4_0": 2}

MAX_SEQUENCES: Final = 256  # LLAMA_MAX_SEQ in llama-cparams.h

# Which tokens llama.cpp looks for before it tokenises what lies between them (llama-vocab.cpp).
_SPECIAL: Final = C.LLAMA_TOKEN_ATTR_CONTROL | C.LLAMA_TOKEN_ATTR_USER_DEFINED | C.LLAMA_TOKEN_ATTR_UNKNOWN

_ERROR_LEVEL: Final = 4  # GGML_LOG_LEVEL_ERROR in ggml.h


@C.llama_log_callback  # type: ignore[untyped-decorator]
def _log(level: int, text: bytes, _: Any) -> None:
    if level == _ERROR_LEVEL:
        logger.debug("llama_error", text=text.decode(errors="replace").strip())


_started = False


def _start() -> None:
    global _started
    if not _started:
        C.llama_log_set(_log, ctypes.c_void_p(0))
        C.llama_backend_init()
        _started = True


@dataclass(frozen=True, slots=True)
class BackendDevice:
    """A device that this build of llama.cpp can see; memory in bytes."""

    handle: int
    name: str  # ggml's own name, e.g. "CUDA0"
    description: str
    kind: str  # "cpu", "gpu", "igpu", "accel"
    memory_free: int
    memory_total: int


def backend_devices() -> list[BackendDevice]:
    """Every ggml device in ggml's order."""
    _start()
    folder = Path(C.__file__).parent / "lib"
    base = ctypes.CDLL(str(next(folder.glob("*ggml-base.*"))))
    registry = ctypes.CDLL(str(next(path for path in folder.glob("*ggml.*") if "ggml." in path.name)))
    registry.ggml_backend_dev_count.restype = ctypes.c_size_t
    registry.ggml_backend_dev_get.restype = ctypes.c_void_p
    registry.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    for name in ("ggml_backend_dev_name", "ggml_backend_dev_description"):
        getattr(base, name).restype = ctypes.c_char_p
        getattr(base, name).argtypes = [ctypes.c_void_p]
    base.ggml_backend_dev_type.argtypes = [ctypes.c_void_p]
    base.ggml_backend_dev_memory.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    base.ggml_backend_dev_memory.restype = None
    devices = []
    for index in range(registry.ggml_backend_dev_count()):
        handle = registry.ggml_backend_dev_get(index)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        base.ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
        kind = {0: "cpu", 1: "gpu", 2: "igpu"}.get(base.ggml_backend_dev_type(handle), "accel")
        devices.append(
            BackendDevice(
                handle=handle,
                name=base.ggml_backend_dev_name(handle).decode(),
                description=base.ggml_backend_dev_description(handle).decode(),
                kind=kind,
                # ggml takes all of the machine's memory for free.
                memory_free=min(free.value, available_memory()) if kind == CPU else free.value,
                memory_total=total.value,
            )
        )
    return devices


def build_info() -> str:
    """What this llama.cpp was built with, for cache keys: instruction sets and backends."""
    _start()
    return str(C.llama_print_system_info().decode())


class Model:
    """A loaded GGUF: weights and vocabulary, or the vocabulary alone. Free it with `close`."""

    def __init__(
        self,
        path: str | Path,
        *,
        vocab_only: bool = False,
        device: BackendDevice | None = None,
        gpu_layers: int = -1,
        tensor_split: Sequence[float] = (),
        progress: Callable[[float], None] | None = None,
    ) -> None:
        """Load `path`. `device` None means CPU. Raises `LlamaError` if it is not a model that llama.cpp can load."""
        _start()
        params = C.llama_model_default_params()
        params.vocab_only = vocab_only
        params.n_gpu_layers = 0 if device is None or device.kind == "cpu" else gpu_layers
        handles = [] if device is None or device.kind == "cpu" else [device.handle]
        self._devices = (ctypes.c_void_p * (len(handles) + 1))(*handles, None)
        params.devices = ctypes.cast(self._devices, ctypes.c_void_p)
        if tensor_split:
            self._split = (ctypes.c_float * C.llama_max_devices())(*tensor_split)
            params.tensor_split = ctypes.cast(self._split, ctypes.POINTER(ctypes.c_float))
            params.devices = None  # a split over all devices, in ggml's order

        def report(fraction: float, _: Any) -> bool:
            if progress is not None:
                progress(fraction)
            return True

        self._progress = C.llama_progress_callback(report)
        params.progress_callback = self._progress
        self.path = Path(path)
        self.handle = C.llama_model_load_from_file(str(path).encode(), params)
        if not self.handle:
            raise LlamaError(f"{path}: llama.cpp cannot load this file as a GGUF model")
        self.vocabulary = Vocabulary(self.handle)

    @property
    def n_ctx_train(self) -> int:
        return int(C.llama_model_n_ctx_train(self.handle))

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return int(C.llama_model_size(self.handle))

    @property
    def description(self) -> str:
        buffer = ctypes.create_string_buffer(128)
        C.llama_model_desc(self.handle, buffer, len(buffer))
        return buffer.value.decode(errors="replace")

    @property
    def can_roll_back(self) -> bool:
        """False for recurrent and hybrid models, whose state cannot drop its last tokens."""
        return not (C.llama_model_is_recurrent(self.handle) or C.llama_model_is_hybrid(self.handle))

    def metadata(self, key: str) -> str | None:
        """A metadata value as text, or None."""
        return self.vocabulary.metadata(key)

    def close(self) -> None:
        if self.handle:
            C.llama_model_free(self.handle)
            self.handle = None


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

        Takes time linear in the text's length, whatever it is made of, except for `add_special`.
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
    def _marks(self) -> Marks:
        """Of text in which every special token is looked for."""
        return self._marks_with(C.LLAMA_TOKEN_ATTR_CONTROL | C.LLAMA_TOKEN_ATTR_USER_DEFINED)

    @cached_property
    def _own_marks(self) -> Marks:
        """Of text in which control tokens are not: only those of a model's own."""
        return self._marks_with(C.LLAMA_TOKEN_ATTR_USER_DEFINED)

    def _marks_with(self, wanted: int) -> Marks:
        special, marks = [], []
        for token in range(self.n_tokens):
            attributes = C.llama_vocab_get_attr(self._vocab, token)
            if attributes & _SPECIAL:
                text = (C.llama_vocab_get_text(self._vocab, token) or b"").decode(errors="replace")
                special.append(text)
                # One with RSTRIP takes the white space behind it along.
                if attributes & wanted and not attributes & C.LLAMA_TOKEN_ATTR_RSTRIP:
                    marks.append(text)
        return Marks(special, marks)

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
        """Every token's raw text as the model file has it: what two vocabularies are compared by."""
        return [C.llama_vocab_get_text(self._vocab, token) or b"" for token in range(self.n_tokens)]

    def metadata(self, key: str) -> str | None:
        size = 4096
        while True:
            buffer = ctypes.create_string_buffer(size)
            count = int(C.llama_model_meta_val_str(self._model, key.encode(), buffer, size))
            if count < 0:
                return None
            if count < size:
                return buffer.raw[:count].decode(errors="replace")
            size = count + 1

    def chat_template(self, name: str | None = None) -> str | None:
        """The model's chat template (Jinja), or None."""
        text = C.llama_model_chat_template(self._model, name.encode() if name else None)
        return text.decode(errors="replace") if text else None


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
        cache_type_k: str = "f16",
        cache_type_v: str = "f16",
        flash_attn: bool | None = None,
        offload_kv: bool = True,
    ) -> None:
        """`n_ctx` is per sequence; the product is allocated. `flash_attn` None lets llama.cpp choose.

        `branches` are wanted for each sequence; there are fewer if llama.cpp has not so many ids, and none without
        the unified cache. Their tokens take cells of their own.
        """
        branches = min(branches, MAX_SEQUENCES // sequences - 1) if unified and model.can_roll_back else 0
        params = C.llama_context_default_params()
        params.n_ctx = (n_ctx + branches * BRANCH_CELLS) * sequences
        params.n_batch = params.n_ubatch = max_rows
        params.n_seq_max = sequences * (1 + branches)
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified = unified
        params.swa_full = True  # a window that forgot tokens could not be rolled back to
        params.flash_attn_type = -1 if flash_attn is None else int(flash_attn)
        params.type_k, params.type_v = CACHE_TYPES[cache_type_k], CACHE_TYPES[cache_type_v]
        params.offload_kqv = offload_kv
        params.no_perf = True
        self.handle = C.llama_init_from_model(model.handle, params)
        if not self.handle:
            raise LlamaError(
                f"{model.path.name}: no context of {sequences} x {n_ctx} tokens, {cache_type_k}/{cache_type_v} cache"
                " (too little memory, or a cache type that needs flash attention)"
            )
        self.n_ctx = int(C.llama_n_ctx_seq(self.handle)) if not unified else n_ctx
        self.sequences = sequences
        self.branches = branches
        self.unified = unified
        self.max_rows = max_rows
        self.can_roll_back = model.can_roll_back
        self.n_vocab = model.vocabulary.n_tokens
        self._memory = C.llama_get_memory(self.handle)
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
        """Run the model over `rows`. Raises `LlamaError`; the cache is then unchanged for these rows."""
        count = len(rows)
        if not 0 < count <= self.max_rows:
            raise LlamaError(f"a decode takes 1 to {self.max_rows} rows, not {count}")
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

    def logits(self, row: int) -> npt.NDArray[np.float32]:
        """Row `row`'s logits, float32 of the vocabulary's size; a view that the next decode overwrites."""
        pointer = C.llama_get_logits_ith(self.handle, row)
        if not pointer:
            raise LlamaError(f"row {row} of the last decode has no logits")
        values = (ctypes.c_float * self.n_vocab).from_address(ctypes.addressof(pointer.contents))
        return np.ndarray(self.n_vocab, np.float32, buffer=memoryview(values))

    def truncate(self, sequence: int, length: int) -> None:
        """Forget everything of `sequence` from position `length` on."""
        if not C.llama_memory_seq_rm(self._memory, sequence, length, -1):
            raise LlamaError(f"this model cannot drop the tokens of sequence {sequence} from {length} on")

    def copy(self, source: int, target: int, length: int, start: int = 0) -> None:
        """Make `target`, which holds the first `start` tokens of `source`, hold the first `length` of them."""
        if self.unified:
            C.llama_memory_seq_rm(self._memory, target, start, -1)
            C.llama_memory_seq_cp(self._memory, source, target, start, length)
            return
        if start:
            raise LlamaError("only the unified cache copies a part of a sequence")
        C.llama_memory_seq_rm(self._memory, target, -1, -1)
        # In the streams layout a partial copy fails an assert, so copy whole and drop the tail.
        C.llama_memory_seq_cp(self._memory, source, target, -1, -1)
        self.truncate(target, length)

    def close(self) -> None:
        if self.handle:
            C.llama_free(self.handle)
            self.handle = None
