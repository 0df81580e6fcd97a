"""Whatever bytes arrive, a decoder gives a checked message or one clean error; whatever drafters say, answers stay."""

import contextlib
import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.verifier.planner import PATIENCE_MS, PATIENCE_STEPS
from shared.wire import codec
from shared.wire.messages import Proposal, Sampling, Speculation
from tests.examples import few
from tests.hostile import bodies, wire
from tests.toys import EOG, VOCABULARY, job, plain_answer
from tests.unit.verifier.bench import CHEAP, Bench

DECODERS: dict[str, Callable[[bytes], Any]] = {
    "job": codec.decode_job,
    "chunk": codec.decode_chunk,
    "hint": codec.decode_hint,
    "reply": codec.decode_proposal,
    "card": codec.decode_card,
}


def test_the_corpus_is_large() -> None:
    assert len({data for _, data in bodies.bodies()}) + len({data for _, data in wire.blobs()}) >= 200
    assert sum(1 for name in wire.HONEST for _ in wire.wrong_fields(name)) > 1000


@pytest.mark.parametrize("plane", DECODERS)
def test_hostile_bytes_are_a_message_or_one_clean_error(plane: str) -> None:
    corpora = [wire.blobs(), *(wire.wrong_fields(name) for name in wire.HONEST)]
    for _, data in (item for corpus in corpora for item in corpus):
        try:
            message = DECODERS[plane](data)
        except codec.CodecError:
            continue
        assert DECODERS[plane](codec.encode(message)) == message or _holds_nan(message)


@settings(max_examples=few(300))
@given(data=st.binary(max_size=200), plane=st.sampled_from(sorted(DECODERS)), version=st.booleans())
def test_random_bytes_are_a_message_or_one_clean_error(data: bytes, plane: str, version: bool) -> None:
    with contextlib.suppress(codec.CodecError):
        DECODERS[plane](bytes((codec.VERSION,)) + data if version else data)


def _holds_nan(value: Any) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    if isinstance(value, msgspec.Struct):
        return any(map(_holds_nan, msgspec.structs.astuple(value)))
    return isinstance(value, list | tuple) and any(map(_holds_nan, value))


def test_no_confidence_is_no_number() -> None:
    for score in (math.nan, math.inf, -math.inf, -0.1, 1.1):
        raw = msgspec.msgpack.decode(codec.encode(wire.HONEST["proposal"])[1:])
        raw[6] = [score]
        with pytest.raises(codec.CodecError):
            codec.decode_proposal(codec.encode(wire.HONEST["proposal"])[:1] + msgspec.msgpack.encode(raw))


BIG = st.sampled_from([0, 1, 2, 63, 64, 255, 1 << 31, 1 << 62, (1 << 64) - 1])
TOKENS = st.lists(st.one_of(st.integers(0, VOCABULARY + 3), st.just((1 << 31) - 1)), min_size=1, max_size=40)


@st.composite
def proposals(draw: st.DrawFn) -> Proposal:
    """Sound in shape, as the codec lets it pass, and otherwise anything."""
    tokens = draw(TOKENS)
    parents = [draw(st.integers(-1, max(-1, index - 1))) for index in range(len(tokens))] if draw(st.booleans()) else []
    made = Proposal(
        request_id=draw(st.sampled_from(["r1", "r2", "nobody"])),
        epoch=draw(st.one_of(st.just(1), BIG)),
        base=draw(st.one_of(st.integers(0, 40), BIG)),
        prefix_hash=draw(st.one_of(st.just(-1), BIG)) % (1 << 64),
        tokens=tuple(tokens),
        scores=tuple(draw(st.floats(0, 1)) for _ in tokens),
        drafter=draw(st.sampled_from(["d", "e", "stranger", "grammar", "\x00"])),
        step_us=draw(BIG),
        parents=tuple(parents),
        batch=draw(BIG),
        copied=draw(BIG),
    )
    return codec.decode_proposal(codec.encode(made))


@pytest.mark.slow
@settings(max_examples=few(60))
@given(data=st.data(), insists=st.booleans())
def test_whatever_drafters_say_the_answer_is_the_plain_one_and_nothing_grows(
    data: st.DataObject, insists: bool
) -> None:
    bench = Bench(drafters=("d", "e"))
    speculation = Speculation.ALWAYS if insists else Speculation.AUTO
    sampling = Sampling(seed=4, logit_bias=((EOG, -100.0),))
    request = job(max_tokens=12, sampling=sampling, speculation=speculation)
    generation = bench.admit(request)

    def lie() -> None:
        lies = data.draw(st.lists(proposals(), max_size=6))
        # Some hang from the true prefix, or they would only be stale.
        true = generation.trie.root.hash
        lies = [
            msgspec.structs.replace(one, prefix_hash=true, base=generation.offset) if index % 2 else one
            for index, one in enumerate(lies)
        ]
        bench.engine.take(lies, bench.now * 1000)
        assert len(generation.trie) <= 512
        longest = 2 * CHEAP[64] + max(PATIENCE_MS, PATIENCE_STEPS * CHEAP[64])
        assert bench.engine.plan().wait_ms <= longest

    bench.finish(lie)
    assert bench.answers["r1"] == plain_answer(request)


def test_a_drafter_that_claims_endless_steps_is_not_waited_for() -> None:
    bench = Bench()
    request = job(max_tokens=8, sampling=Sampling(seed=4, logit_bias=((EOG, -100.0),)), speculation=Speculation.ALWAYS)
    generation = bench.admit(request)
    while generation.uncomputed > 1:
        bench.round()
    answer = plain_answer(request)
    lie = Proposal(
        request_id="r1", epoch=1, base=generation.offset, prefix_hash=generation.trie.root.hash,
        tokens=(answer[generation.offset],), scores=(1.0,), drafter="d", step_us=1 << 62, batch=1 << 62,
    )  # fmt: skip
    bench.engine.take([lie], bench.now * 1000)
    bench.round()
    assert bench.engine.plan().wait_ms <= 2 * max(PATIENCE_MS, PATIENCE_STEPS * CHEAP[1])
