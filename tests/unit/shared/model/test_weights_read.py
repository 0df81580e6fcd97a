"""Which weights a plain decode reads, and what share of a bandwidth that takes."""

import pytest

from shared.model import weights_read
from shared.model.gguf_header import Header, Tensor
from shared.model.weights_read import BandwidthUse


def header(sizes: dict[str, int], **metadata: int) -> Header:
    tensors = tuple(Tensor(name, (size,), 0, 0, size) for name, size in sizes.items())
    return Header({"general.architecture": "a", **{f"a.{key}": value for key, value in metadata.items()}}, tensors)


def test_of_the_input_s_table_a_token_reads_one_row() -> None:
    one = header({"token_embd.weight": 1000, "blk.0.ffn_up.weight": 70, "output.weight": 30})
    assert weights_read.per_token([one]) == 100


def test_a_table_that_is_also_the_output_is_read_whole() -> None:
    one = header({"token_embd.weight": 1000, "per_layer_token_embd.weight": 5000, "blk.0.ffn_up.weight": 70})
    assert weights_read.per_token([one]) == 1070


def test_only_the_experts_that_a_token_uses_are_read() -> None:
    first = header({"blk.0.ffn_up_exps.weight": 800, "blk.0.attn_q.weight": 5}, expert_count=8, expert_used_count=2)
    second = Header({}, header({"output.weight": 20, "token_embd.weight": 99}).tensors)
    assert weights_read.per_token([first, second]) == 225


def test_the_share_is_what_is_read_over_what_could_be() -> None:
    reading = BandwidthUse(weights=2_000_000_000, bandwidth=20e9, threads=2)
    assert reading.share(5.0) == pytest.approx(0.5)
    assert reading.sentence(5.0) == (
        "a plain decode reads 2.00 GB of weights at 10.0 GB/s, 50% of the 20.0 GB/s at which 2 threads read memory here"
    )


def test_a_bandwidth_that_was_not_measured_gives_no_share() -> None:
    reading = BandwidthUse(weights=1, bandwidth=0.0, threads=1)
    assert (reading.share(5.0), reading.sentence(5.0)) == (None, "")
