"""How many bytes of weights a plain decode reads per token, and the share of a read bandwidth that is. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shared.model.gguf_header import Header

_INPUT: Final = "token_embd.weight"
_OUTPUT: Final = "output.weight"
_LOOKED_UP: Final = frozenset({_INPUT, "per_layer_token_embd.weight"})  # of these a token reads one row
_EXPERTS: Final = "_exps."


def per_token(shards: Sequence[Header]) -> int:
    """Bytes of weights that the decode of one token reads, from the headers of a model's files.

    Of experts it counts as many as a token uses.
    """
    head = shards[0]
    architecture = head.text("general.architecture")
    experts, used = (head.number(f"{architecture}.{key}") for key in ("expert_count", "expert_used_count"))
    tensors = [tensor for shard in shards for tensor in shard.tensors]
    tied = all(tensor.name != _OUTPUT for tensor in tensors)  # then the table of the input is also the output's matrix
    total = 0
    for tensor in tensors:
        if tensor.name in _LOOKED_UP and not (tied and tensor.name == _INPUT):
            continue
        total += tensor.size * used // experts if _EXPERTS in tensor.name and experts else tensor.size
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthUse:
    """A measured read bandwidth, and what a plain decode has to read."""

    weights: int  # bytes per token
    bandwidth: float  # bytes per second, with `threads`; 0: not measured
    threads: int

    def share(self, tokens_per_second: float) -> float | None:
        """The share of the bandwidth that decoding so fast takes; None where that was not measured."""
        return self.weights * tokens_per_second / self.bandwidth if self.bandwidth else None

    def sentence(self, tokens_per_second: float) -> str:
        """The share in words; empty where it was not measured."""
        share = self.share(tokens_per_second)
        if share is None:
            return ""
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return (
            f"a plain decode reads {self.weights / 1e9:.2f} GB of weights at"
            f" {self.weights * tokens_per_second / 1e9:.1f} GB/s, {share:.0%} of the {self.bandwidth / 1e9:.1f} GB/s at"
            f" which {threads} read memory here"
        )
