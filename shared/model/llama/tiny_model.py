"""A model of random weights, a few hundred kilobytes: enough to run llama.cpp's kernels for one type of weights."""

import ctypes
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFWriter

from shared.model.llama import library

WIDTH: Final = 256  # a multiple of every type's block
CONTEXT: Final = 256
TOKENS: Final = 288
_INNER: Final = 512
_HEADS: Final = 4
_KEY_HEADS: Final = 2
_SEED: Final = 7


def write(path: Path, kind: int) -> bool:
    """Write a model whose matrices are of ggml's type `kind`; False if ggml cannot make weights of that type."""
    keys = WIDTH // _HEADS * _KEY_HEADS
    shapes = {
        "token_embd": (TOKENS, WIDTH),
        "output": (TOKENS, WIDTH),
        "blk.0.attn_q": (WIDTH, WIDTH),
        "blk.0.attn_k": (keys, WIDTH),
        "blk.0.attn_v": (keys, WIDTH),
        "blk.0.attn_output": (WIDTH, WIDTH),
        "blk.0.ffn_gate": (_INNER, WIDTH),
        "blk.0.ffn_up": (_INNER, WIDTH),
        "blk.0.ffn_down": (WIDTH, _INNER),
    }
    random = np.random.default_rng(_SEED)
    writer = GGUFWriter(path, "llama")
    _describe(writer)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    for name, (rows, columns) in shapes.items():
        # Values and gradients of size one throughout, as in a trained model.
        values = random.standard_normal((rows, columns), np.float32) / np.float32(columns) ** 0.5
        packed = _packed(values, kind)
        if packed is None:
            return False
        writer.add_tensor(f"{name}.weight", packed, raw_dtype=GGMLQuantizationType(kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return True


def _describe(writer: GGUFWriter) -> None:
    writer.add_block_count(1)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(_INNER)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_KEY_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // _HEADS)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{token}".encode() for token in range(TOKENS)])
    writer.add_token_types([1] * TOKENS)
    writer.add_token_merges(["t 1"])


def _packed(values: npt.NDArray[np.float32], kind: int) -> npt.NDArray[np.uint8] | None:
    """`values` as ggml stores them in type `kind`, row by row in bytes."""
    rows, columns = values.shape
    row_size = int(library.ggml("ggml_row_size", ctypes.c_size_t, ctypes.c_int, ctypes.c_int64)(kind, columns))
    importance = np.ones(columns, np.float32)  # some types need weights for the columns
    packed = np.zeros((rows, row_size), np.uint8)
    pack = library.ggml(
        "ggml_quantize_chunk",
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.c_void_p,
    )
    size = pack(kind, values.ctypes.data, packed.ctypes.data, 0, rows, columns, importance.ctypes.data)
    return packed if size == packed.nbytes else None
