import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared import codec
from shared.messages import Chunk, Commit, Finish, Hello, Open, Proposal, Sampling, TokenLogprob
from tests.toys import drafter_card, job

CHUNK = Chunk(
    tokens=(1, 2), sources=("d", ""), drafted=3, accepted=1, finish=Finish.STOP, logprobs=(TokenLogprob(-0.5),)
)
PROPOSAL = Proposal(
    request_id="r",
    epoch=1,
    base=0,
    prefix_hash=2**64 - 1,
    tokens=(1, 2),
    scores=(0.5, 1.0),
    drafter="d",
    step_us=7,
    copied=1,
)


def test_every_message_survives_the_wire() -> None:
    request = job(sampling=Sampling(seed=2**64 - 1, logit_bias=((3, -100.0),)))
    assert codec.decode_job(codec.encode(request)) == request
    assert codec.decode_chunk(codec.encode(CHUNK)) == CHUNK
    assert codec.decode_reply(codec.encode(PROPOSAL)) == PROPOSAL
    assert codec.decode_reply(codec.encode(Hello(drafter="d"))) == Hello(drafter="d")
    for hint in (
        Open(request_id="r", reply_to="v", epoch=1, eog=(1,), n_vocab=64, lead=8),
        Commit(request_id="r", epoch=1, base=0, tokens=(4,), lead=8),
    ):
        assert codec.decode_hint(codec.encode(hint)) == hint


def test_a_later_release_may_append_fields() -> None:
    encoded = codec.encode(CHUNK)
    fields = [*msgspec.msgpack.decode(encoded[1:]), "a field of the future"]
    assert codec.decode_chunk(encoded[:1] + msgspec.msgpack.encode(fields)) == CHUNK


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\x02" + codec.encode(CHUNK)[1:],
        codec.encode(CHUNK)[:-1],
        codec.encode(PROPOSAL),  # another plane's message
        b"\x01\xc1",
        b"\x01" + b"\x91" * 5000,
        b"\x01" + msgspec.msgpack.encode(["chunk", [-1]]),
        b"\x01" + msgspec.msgpack.encode(["chunk", [2**31]]),
        b"\x01" + msgspec.msgpack.encode(["chunk", ["1"]]),
    ],
)
def test_what_is_not_a_chunk_is_refused(data: bytes) -> None:
    with pytest.raises(codec.CodecError):
        codec.decode_chunk(data)


@pytest.mark.parametrize("parents", [(-1,), (0, -1), (-1, 1), (-1, 2), (-2, -1), (-1, 0, 1)])
def test_a_proposal_whose_parents_are_no_tree_is_refused(parents: tuple[int, ...]) -> None:
    forged = msgspec.structs.replace(PROPOSAL, parents=parents)
    with pytest.raises(codec.CodecError):
        codec.decode_reply(codec.encode(forged))
    tree = msgspec.structs.replace(PROPOSAL, parents=(-1, -1))
    assert codec.decode_reply(codec.encode(tree)) == tree


@pytest.mark.parametrize("scores", [(0.5,), (float("nan"), 0.5), (1.5, 0.5), (float("inf"), 0.5), (-0.1, 0.5)])
def test_a_proposal_with_impossible_scores_is_refused(scores: tuple[float, ...]) -> None:
    forged = msgspec.structs.replace(PROPOSAL, scores=scores)
    with pytest.raises(codec.CodecError):
        codec.decode_reply(codec.encode(forged))


@given(st.binary(max_size=200))
def test_random_bytes_raise_codec_errors_only(data: bytes) -> None:
    for decode in (codec.decode_job, codec.decode_chunk, codec.decode_hint, codec.decode_reply, codec.decode_card):
        for payload in (data, b"\x01" + data):
            try:
                decode(payload)
            except codec.CodecError:
                continue


def test_an_oversized_message_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(codec.CodecError, match="limit"):
        codec.decode_job(b"\x01" + bytes(codec.MAX_BYTES))


def test_cards_survive_the_wire() -> None:
    card = drafter_card("d")
    assert codec.decode_card(codec.encode(card)) == card
