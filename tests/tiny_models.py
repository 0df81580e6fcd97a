"""Models of random weights, under a megabyte, that llama.cpp loads and decodes and a gateway can serve.

Answers are noise, yet every token of them depends on what stood before, as with a real model.
"""

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, TokenType, quants

START, END = "<|im_start|>", "<|im_end|>"
TEMPLATE: Final = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
QUANTS: Final = {
    "F32": (GGMLQuantizationType.F32, LlamaFileType.ALL_F32),
    "F16": (GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "Q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
    "Q4_0": (GGMLQuantizationType.Q4_0, LlamaFileType.MOSTLY_Q4_0),
}
HEAD: Final = 64  # the width of an attention head that every backend has kernels for
_SHARPNESS: Final = 2.5  # the standard deviation of logits: likely and unlikely tokens, as a trained model has


def write(path: Path, quant: str = "Q8_0", *, layers: int = 2, heads: int = 4, context: int = 1024) -> Path:
    """A llama of `layers` layers and width 64 × `heads`; one in another `quant` has the same weights, rounded."""
    width, inner = HEAD * heads, HEAD * heads * 2
    writer = GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_block_count(layers)
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads // 2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(QUANTS[quant][1])
    count = _add_vocabulary(writer)
    shapes = {"token_embd": (count, width), "output": (count, width)}
    for layer in range(layers):
        shapes |= {
            f"blk.{layer}.attn_q": (width, width),
            f"blk.{layer}.attn_k": (width // 2, width),
            f"blk.{layer}.attn_v": (width // 2, width),
            f"blk.{layer}.attn_output": (width, width),
            f"blk.{layer}.ffn_gate": (inner, width),
            f"blk.{layer}.ffn_up": (inner, width),
            f"blk.{layer}.ffn_down": (width, inner),
        }
    random = np.random.default_rng(7)
    for name, shape in shapes.items():
        weights = random.standard_normal(shape, np.float32)
        if name == "output":
            weights *= _SHARPNESS
            weights[:2] = 0  # marks are unlikely: answers go on until they are as long as they may be
        elif name != "token_embd":
            weights *= 2
        if name != "token_embd":
            weights /= np.sqrt(shape[1])
        _add_tensor(writer, f"{name}.weight", weights, quant)
    norms = ["output_norm"] + [f"blk.{layer}.{kind}_norm" for layer in range(layers) for kind in ("attn", "ffn")]
    for name in norms:
        writer.add_tensor(f"{name}.weight", np.ones(width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tensor(writer: GGUFWriter, name: str, weights: npt.NDArray[np.float32], quant: str) -> None:
    kind = QUANTS[quant][0]
    writer.add_tensor(name, quants.quantize(weights, kind), raw_dtype=kind)


def _add_vocabulary(writer: GGUFWriter) -> int:
    """Two marks, a token for each byte, and one of two letters; returns how many tokens there are."""
    tokens = [START, END, *_byte_letters(), "th"]  # one merge, since llama.cpp wants some
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL] * 2 + [TokenType.NORMAL] * (len(tokens) - 2))
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    return len(tokens)


def _byte_letters() -> list[str]:
    """The letter that stands for each byte in byte-level BPE: its own if it is printable, else one from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: byte for byte in printable} | {byte: 256 + number for number, byte in enumerate(others)}
    return [chr(letters[byte]) for byte in range(256)]
