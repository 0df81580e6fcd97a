"""The types of a model's weights, read from the headers of its files."""

import ctypes
from pathlib import Path
from typing import Final

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from shared.model import gguf_header, model_files
from shared.model.gguf_header import NotGGUF
from shared.model.llama import library

_QUANTISED: Final = {kind for kind, (values, _) in GGML_QUANT_SIZES.items() if values > 1}
_KINDS: Final = _QUANTISED | {GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.BF16}


def kinds(model: Path) -> list[int]:
    """ggml's numbers of the types in all files of `model`, ascending; empty if one of them is no GGUF file."""
    try:
        found = {tensor.kind for file in model_files.shards(model) for tensor in gguf_header.read(file).tensors}
    except (NotGGUF, OSError):
        return []
    return sorted(found & _KINDS)


def name(kind: int) -> str:
    """ggml's name for the type: `q4_K`."""
    return str(library.ggml("ggml_type_name", ctypes.c_char_p, ctypes.c_int)(kind).decode())
