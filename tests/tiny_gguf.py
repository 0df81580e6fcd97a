"""GGUF files of a few kilobytes, as the format's own library writes them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, LlamaFileType

TOKENS = [b"<s>", b"a", b"b", "é".encode(), b"", b"x\0y", b"c", b"d"]


def write(
    path: Path,
    tokens: Sequence[bytes] = TOKENS,
    layers: int = 2,
    width: int = 32,
    numbers: Mapping[str, int | list[int]] | None = None,
    architecture: str = "llama",
    output: bool = False,
) -> Path:
    """A model of `layers` layers in F32; `numbers` are more metadata of its architecture."""
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(layers)
    writer.add_context_length(2048)
    writer.add_embedding_length(width)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_file_type(LlamaFileType.ALL_F32)
    for key, value in (numbers or {}).items():
        if isinstance(value, list):
            writer.add_array(f"{architecture}.{key}", value)
        else:
            writer.add_uint32(f"{architecture}.{key}", value)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * len(tokens))
    writer.add_token_merges(["a b"])
    shapes = {"token_embd.weight": (len(tokens), width), "output_norm.weight": (width,)}
    if output:
        shapes["output.weight"] = (len(tokens), width)
    for layer in range(layers):
        shapes[f"blk.{layer}.attn_q.weight"] = (width, width)
        shapes[f"blk.{layer}.attn_norm.weight"] = (width,)
    for name, shape in shapes.items():
        writer.add_tensor(name, np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
