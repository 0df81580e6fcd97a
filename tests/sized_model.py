"""A model of which only the sizes matter: what it takes of a device's memory."""

from shared.model.model_sizes import ModelSizes


class Sized(ModelSizes, frozen=True, kw_only=True):
    """An 8B model in 4 bits: 32 layers, 4.9 GB, 128 KiB of cache per token."""

    architecture: str = "llama"
    context: int = 131072
    embedding: int = 4096
    layers: tuple[int, ...] = (130_000_000,) * 32
    output: int = 430_000_000
    input: int = 300_000_000
    tied: bool = False
    cache: tuple[int, ...] = (2048,) * 32
    window: int = 0
    windowed: tuple[bool, ...] = (False,) * 32
    n_tokens: int = 128256
