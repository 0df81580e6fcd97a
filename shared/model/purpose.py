"""Checks from a file's metadata whether the model can write text at all. Pure."""

from collections.abc import Mapping
from typing import Final

# Architectures of llama.cpp (`llama-arch.cpp`) with bidirectional attention.
_ENCODERS: Final = frozenset(
    {
        "bert",
        "eurobert",
        "gemma-embedding",
        "jina-bert-v2",
        "jina-bert-v3",
        "llama-embed",
        "modern-bert",
        "neo-bert",
        "nomic-bert",
        "nomic-bert-moe",
        "t5encoder",
    }
)
_DIFFUSION: Final = frozenset({"dream", "llada", "llada-moe", "rnd1"})
_RANK: Final = 4  # llama_pooling_type in llama.h; 1 to 3 make one vector from a text's vectors


def unfit(metadata: Mapping[str, object]) -> str:
    """Why a model with this metadata cannot write text token by token, in a few words; empty if it can."""
    architecture = str(metadata.get("general.architecture", ""))
    kind = metadata.get("general.type", "model")
    pooling = metadata.get(f"{architecture}.pooling_type", 0)
    if kind not in ("", "model"):
        return f"it is only a part of a model ({kind})"
    if architecture == "clip":
        return "it is only the image or audio part of a model"
    if pooling == _RANK:
        return "it is a reranking model, which rates texts and writes none"
    if architecture in _ENCODERS or pooling in (1, 2, 3):
        return "it is an embedding model, which turns texts into vectors and writes none"
    if architecture == "t5":
        return "it is an encoder-decoder model, and draftmesh serves decoder-only models"
    if architecture in _DIFFUSION or metadata.get(f"{architecture}.attention.causal") is False:
        return "it is a diffusion model, and draftmesh serves models that write token by token"
    return ""
