"""The sizes of a model's parts and of its cache, from which its memory is estimated. Pure.

Read from the headers of all its shards. Metadata keys: ggml's `docs/gguf.md` and llama.cpp's `llama-arch.cpp`.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from shared.model.gguf_header import Header, NotGGUF

_LAYER: Final = re.compile(r"blk\.(\d+)\.")
_INPUT: Final = "token_embd.weight"
_OUTPUT: Final = "output.weight"
_TOKENS: Final = "tokenizer.ggml.tokens"
_MOST_LAYERS: Final = 4096  # the deepest known models have some 130
# Which layers have a sliding window if the file does not say: of each group, all but the last, or all but the first.
# From `set_swa_pattern` in llama.cpp's models; for other models all layers count as full, which only overestimates.
_LAST_SEES_ALL: Final = {
    "afmoe": 4,
    "cohere2": 4,
    "exaone-moe": 4,
    "exaone4": 4,
    "gemma2": 2,
    "gemma3": 6,
    "gemma3n": 5,
    "gpt-oss": 2,
    "llama4": 4,
    "mellum": 4,
    "muse-glimmer": 4,
    "olmo2": 4,
    "plamo3": 8,
}
_FIRST_SEES_ALL: Final = {"cohere2moe": 4, "laguna": 4, "smallthinker": 4}


class ModelSizes(msgspec.Struct, frozen=True, kw_only=True):
    """A model's parts; sizes in bytes."""

    architecture: str
    context: int  # tokens that it was trained for; 0: the file does not say
    embedding: int  # width of a token's vector
    layers: tuple[int, ...]  # weights of each layer
    output: int  # weights after the last layer
    input: int  # the table of the tokens' vectors
    tied: bool  # the table also stands for the output's weights
    cache: tuple[int, ...]  # numbers that each layer caches for a token, keys and values together
    window: int  # tokens that a layer with a sliding window sees; 0 if no layer has one
    windowed: tuple[bool, ...]  # whether each layer has one
    n_tokens: int

    @property
    def weights(self) -> int:
        return sum(self.layers) + self.output + self.input


def measure(shards: Sequence[Header]) -> ModelSizes:
    """The sizes of a model from the headers of its files, the first of which holds the metadata.

    Raises `NotGGUF` for impossible values.
    """
    head = shards[0]
    architecture = head.text("general.architecture")
    count = head.number(f"{architecture}.block_count")
    if not 0 <= count <= _MOST_LAYERS:
        raise NotGGUF(f"{count} layers")
    tensors = [tensor for shard in shards for tensor in shard.tensors]
    layers = [0] * count
    output = 0
    for tensor in tensors:
        match = _LAYER.match(tensor.name)
        if match and int(match[1]) < count:
            layers[int(match[1])] += tensor.size
        elif tensor.name != _INPUT:
            output += tensor.size
    tokens = head.metadata.get(_TOKENS)
    window = head.number(f"{architecture}.attention.sliding_window")
    windowed = _windowed(head, architecture, count) if window else [False] * count
    return ModelSizes(
        architecture=architecture,
        context=head.number(f"{architecture}.context_length"),
        embedding=head.number(f"{architecture}.embedding_length"),
        layers=tuple(layers),
        output=output,
        input=sum(tensor.size for tensor in tensors if tensor.name == _INPUT),
        tied=all(tensor.name != _OUTPUT for tensor in tensors),
        cache=_cached_numbers(head, architecture, windowed),
        window=window,
        windowed=tuple(windowed),
        n_tokens=len(tokens) if isinstance(tokens, list) else 0,
    )


def _windowed(head: Header, architecture: str, count: int) -> list[bool]:
    key = f"{architecture}.attention.sliding_window_pattern"
    given = head.metadata.get(key)
    if isinstance(given, list):
        return [bool(one) for one in given[:count]] + [False] * (count - len(given))
    of, whole = head.number(key), -1
    if architecture in _FIRST_SEES_ALL:
        of, whole = of or _FIRST_SEES_ALL[architecture], 0
    of = of or _LAST_SEES_ALL.get(architecture, 1)
    return [layer % of != whole % of for layer in range(count)]


def _cached_numbers(head: Header, architecture: str, windowed: Sequence[bool]) -> tuple[int, ...]:
    count = len(windowed)

    def key(name: str) -> str:
        return f"{architecture}.attention.{name}"

    heads = head.numbers(key("head_count"), count)
    kv_heads = head.numbers(key("head_count_kv"), count, -1)
    embedding = head.number(f"{architecture}.embedding_length")
    interval = head.number(f"{architecture}.full_attention_interval")
    shared = head.number(key("shared_kv_layers"))  # the last so many layers use what earlier ones cached
    numbers = []
    for layer in range(count):
        size = embedding // heads[layer] if heads[layer] else 0
        both = 0
        for part in ("key_length", "value_length"):
            usual = head.numbers(key(part), count, size)[layer]
            both += head.number(key(f"{part}_swa"), usual) if windowed[layer] else usual
        attends = layer < count - shared and (not interval or (layer + 1) % interval == 0)
        own = heads[layer] if kv_heads[layer] < 0 else kv_heads[layer]
        numbers.append(own * both if attends else 0)
    return tuple(numbers)
