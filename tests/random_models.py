"""Models with random weights that llama.cpp loads and computes in a millisecond, written with the format's library."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from gguf import GGUFWriter, LlamaFileType

N_TOKENS: Final = 96
WIDTH: Final = 64
_HEADS: Final = 4
_KV_HEADS: Final = 2
_HEAD: Final = WIDTH // _HEADS
_FORWARD: Final = 128


def llama(path: Path, layers: int = 2, n_tokens: int = N_TOKENS, broken: Sequence[int] = ()) -> Path:
    """A Llama in F32, whose numbers are not finite from a `broken` token on."""
    return _write(path, "llama", layers, n_tokens, window=0, broken=broken)


def gemma3(path: Path, layers: int = 6, window: int = 32) -> Path:
    """A Gemma 3 in F32: five of six layers see a sliding window of `window` tokens."""
    return _write(path, "gemma3", layers, N_TOKENS, window)


def _write(path: Path, architecture: str, layers: int, n_tokens: int, window: int, broken: Sequence[int] = ()) -> Path:
    writer = GGUFWriter(path, architecture)
    describe(writer, architecture, layers, n_tokens, window)
    source = np.random.default_rng(0)
    for name, shape in _shapes(layers, n_tokens, gemma=architecture == "gemma3").items():
        values = source.standard_normal(shape, np.float32)
        if name == "token_embd.weight":
            values[list(broken)] = np.nan
        # Norms stay near one, and matrices keep the length of what they multiply.
        writer.add_tensor(name, 1 + values / 10 if len(shape) == 1 else values / np.float32(np.sqrt(shape[1])))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def describe(writer: GGUFWriter, architecture: str, layers: int, n_tokens: int = N_TOKENS, window: int = 0) -> None:
    """The model's metadata, without its weights."""
    writer.add_block_count(layers)
    writer.add_context_length(4096)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(_FORWARD)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_KV_HEADS)
    writer.add_key_length(_HEAD)
    writer.add_value_length(_HEAD)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(_HEAD)
    writer.add_file_type(LlamaFileType.ALL_F32)
    if window:
        writer.add_sliding_window(window)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([b"<end>", *(chr(ord("A") + token).encode() for token in range(n_tokens - 1))])
    writer.add_token_types([3, *[1] * (n_tokens - 1)])
    writer.add_token_merges(["A B"])
    writer.add_eos_token_id(0)


def _shapes(layers: int, n_tokens: int, *, gemma: bool) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (n_tokens, WIDTH), "output_norm.weight": (WIDTH,)}
    for layer in range(layers):
        parts: dict[str, tuple[int, ...]] = {
            "attn_norm": (WIDTH,),
            "attn_q": (_HEADS * _HEAD, WIDTH),
            "attn_k": (_KV_HEADS * _HEAD, WIDTH),
            "attn_v": (_KV_HEADS * _HEAD, WIDTH),
            "attn_output": (WIDTH, _HEADS * _HEAD),
            "ffn_norm": (WIDTH,),
            "ffn_gate": (_FORWARD, WIDTH),
            "ffn_up": (_FORWARD, WIDTH),
            "ffn_down": (WIDTH, _FORWARD),
        }
        if gemma:
            parts |= {"attn_q_norm": (_HEAD,), "attn_k_norm": (_HEAD,)}
            parts |= {"post_attention_norm": (WIDTH,), "post_ffw_norm": (WIDTH,)}
        shapes |= {f"blk.{layer}.{part}.weight": shape for part, shape in parts.items()}
    return shapes
