from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.wire import codec
from shared.wire.messages import (
    Chunk,
    Close,
    Commit,
    Finish,
    GatewayCard,
    Open,
    Proposal,
    RequestStatus,
    RoundStarts,
    Sampling,
    Speculation,
    ThinkingLimit,
    TokenLogprob,
    VerifierCard,
)
from tests.releases import Encode, newer, older
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


VERIFIER = VerifierCard(
    id="v",
    host="h",
    pid=1,
    model="m",
    fingerprint="f",
    vocabulary="a",
    n_vocab=64,
    n_ctx=8,
    slots=1,
    device="cpu",
    exactness="law",
    exactness_note="",
    layout="unified",
    speculation=Speculation.AUTO,
    counters={"rounds": 3},
    requests=(RequestStatus(request_id="r", offset=1, tokens_per_round=1.5),),
    starts=(RoundStarts(after="plain", offset=0, rounds=2, ready=1),),
)


def test_every_message_survives_the_wire() -> None:
    request = job(sampling=Sampling(seed=2**64 - 1, logit_bias=((3, -100.0),)))
    assert codec.decode_job(codec.encode(request)) == request
    assert codec.decode_chunk(codec.encode(CHUNK)) == CHUNK
    assert codec.decode_proposal(codec.encode(PROPOSAL)) == PROPOSAL
    for hint in (
        Open(request_id="r", reply_to="v", epoch=1, eog=(1,), n_vocab=64, lead=8),
        Commit(request_id="r", epoch=1, base=0, tokens=(4,), lead=8),
    ):
        assert codec.decode_hint(codec.encode(hint)) == hint


MESSAGES: list[tuple[msgspec.Struct, Callable[[bytes], object]]] = [
    (job(sampling=Sampling(seed=5)), codec.decode_job),
    (
        job(thinking=ThinkingLimit(budget=1, opened=False, start=(), end=(3,), close=(4,)), grammar="g"),
        codec.decode_job,
    ),
    (Chunk(tokens=(1,)), codec.decode_chunk),
    (CHUNK, codec.decode_chunk),
    (Open(request_id="r", reply_to="v", epoch=1, eog=(1,), n_vocab=64, lead=8), codec.decode_hint),
    (Open(request_id="r", reply_to="v", epoch=1, eog=(1,), n_vocab=64, lead=8, worth=0.2), codec.decode_hint),
    (Commit(request_id="r", epoch=1, base=0, tokens=(4,), lead=8), codec.decode_hint),
    (Close(request_id="r"), codec.decode_hint),
    (
        Proposal(request_id="r", epoch=1, base=0, prefix_hash=7, tokens=(1,), scores=(0.5,), drafter="d"),
        codec.decode_proposal,
    ),
    (PROPOSAL, codec.decode_proposal),
    (drafter_card("d"), codec.decode_card),
    (GatewayCard(id="g", host="h", pid=1, url="u", streams=0), codec.decode_card),
    (VERIFIER, codec.decode_card),
]


@pytest.mark.parametrize("release", [older, newer])
@pytest.mark.parametrize(("message", "decode"), MESSAGES, ids=lambda value: type(value).__name__)
def test_messages_of_other_releases_are_understood(
    message: msgspec.Struct, decode: Callable[[bytes], object], release: Encode
) -> None:
    """An older one does not know the last fields, a newer one has more, also in what lies inside of a message."""
    assert decode(release(message)) == message


def test_releases_differ() -> None:
    message = job(sampling=Sampling(seed=5))
    assert len(older(message)) + 10 < len(codec.encode(message)) < len(newer(message)) - 10


@pytest.mark.parametrize("kind", [type(message) for message, _ in MESSAGES] + [Sampling, TokenLogprob, RequestStatus])
def test_a_field_without_a_default_comes_before_all_that_have_one(kind: type[msgspec.Struct]) -> None:
    """Or an older release's message would be read with its fields shifted."""
    required = [field.required for field in msgspec.structs.fields(kind)]
    assert required == sorted(required, reverse=True)


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
        codec.decode_proposal(codec.encode(forged))
    tree = msgspec.structs.replace(PROPOSAL, parents=(-1, -1))
    assert codec.decode_proposal(codec.encode(tree)) == tree


@pytest.mark.parametrize("scores", [(0.5,), (float("nan"), 0.5), (1.5, 0.5), (float("inf"), 0.5), (-0.1, 0.5)])
def test_a_proposal_with_impossible_scores_is_refused(scores: tuple[float, ...]) -> None:
    forged = msgspec.structs.replace(PROPOSAL, scores=scores)
    with pytest.raises(codec.CodecError):
        codec.decode_proposal(codec.encode(forged))


@given(st.binary(max_size=200))
def test_random_bytes_raise_codec_errors_only(data: bytes) -> None:
    for decode in (codec.decode_job, codec.decode_chunk, codec.decode_hint, codec.decode_proposal, codec.decode_card):
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
