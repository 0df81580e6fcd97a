"""Every message of the wire twice: as our type, and as the plain array that the documentation promises."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from services.gateway.storage.kept_turns import KeptTurn
from services.gateway.storage.records import Origin
from shared.machine.devices import Device
from shared.wire import codec
from shared.wire.messages import (
    Arrival,
    Chunk,
    Close,
    Commit,
    Deserted,
    DrafterCard,
    DrafterCounts,
    Finish,
    GatewayCard,
    Job,
    Open,
    Proposal,
    RequestStatus,
    RoundStarts,
    Sampling,
    Site,
    Speculation,
    ThinkingLimit,
    TokenLogprob,
    VerifierCard,
)


class Example(NamedTuple):
    """A message, what it is on the wire behind the version byte, and which decoder of ours takes it."""

    ours: Any
    plain: list[Any]
    decode: Callable[[bytes], Any]


SITE: Final = Site(
    machine="boot",
    quota="/slice",
    devices=(Device("CUDA0", "a card", "gpu", 5, 8, "0000:01:00.0"),),
    cores="ff",
    threads=3,
    most=5,
)
PLAIN_SITE: Final = [
    "boot",
    "/slice",
    [
        {
            "name": "CUDA0",
            "description": "a card",
            "kind": "gpu",
            "memory_free": 5,
            "memory_total": 8,
            "id": "0000:01:00.0",
        }
    ],
    "ff",
    3,
    5,
]
# In every example each field has another value than its default, so that a field in the wrong place is seen.
EXAMPLES: Final = (
    Example(
        Job(
            request_id="r1",
            model="big",
            prompt=(5, 2**31 - 1),
            sampling=Sampling(
                seed=2**64 - 1,
                temperature=0.5,
                top_k=40,
                top_p=0.75,
                min_p=0.125,
                presence_penalty=-1.5,
                frequency_penalty=2.5,
                repetition_penalty=1.25,
                logit_bias=((3, -100.0), (4, 8.0)),
                banned=(6, 2),
            ),
            max_tokens=24,
            speculation=Speculation.ALWAYS,
            top_logprobs=20,
            cache_prompt=False,
            timeout_ms=60_000,
            grammar="start: 'yes'",
            thinking=ThinkingLimit(budget=9, opened=True, start=(7,), end=(8, 9), close=(10, 8, 9)),
            traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            caller="c0ffee",
        ),
        [
            "job",
            "r1",
            "big",
            [5, 2**31 - 1],
            [2**64 - 1, 0.5, 40, 0.75, 0.125, -1.5, 2.5, 1.25, [[3, -100.0], [4, 8.0]], [6, 2]],
            24,
            "always",
            20,
            False,
            60_000,
            "start: 'yes'",
            [9, True, [7], [8, 9], [10, 8, 9]],
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "c0ffee",
        ],
        codec.decode_job,
    ),
    Example(
        Chunk(
            tokens=(11, 12),
            sources=("drafter-1", ""),
            drafted=4,
            accepted=1,
            reason="a device that hangs, or 漢字",
            logprobs=(TokenLogprob(-0.5, ((11, -0.5), (13, -1.25))),),
            finish=Finish.LENGTH,
            detail="for people",
            cached=16,
            tried=2,
        ),
        [
            "chunk",
            [11, 12],
            ["drafter-1", ""],
            4,
            1,
            "a device that hangs, or 漢字",
            [[-0.5, [[11, -0.5], [13, -1.25]]]],
            "length",
            "for people",
            16,
            2,
        ],
        codec.decode_chunk,
    ),
    Example(
        Open(
            request_id="r1",
            reply_to="verifier-1",
            epoch=2,
            eog=(0, 2),
            n_vocab=64,
            lead=20,
            committed=(4, 5),
            worth=0.25,
        ),
        ["open", "r1", "verifier-1", 2, [0, 2], 64, 20, [4, 5], 0.25],
        codec.decode_hint,
    ),
    Example(
        Commit(request_id="r1", epoch=2, base=7, tokens=(4,), lead=8, want=3, worth=0.5),
        ["commit", "r1", 2, 7, [4], 8, 3, 0.5],
        codec.decode_hint,
    ),
    Example(Close(request_id="r1"), ["close", "r1"], codec.decode_hint),
    Example(
        Proposal(
            request_id="r1",
            epoch=2,
            base=7,
            prefix_hash=2**64 - 2,
            tokens=(1, 2, 3),
            scores=(1.0, 0.5, 0.25),
            drafter="drafter-1",
            step_us=1500,
            parents=(-1, 0, 0),
            batch=2,
            copied=1,
        ),
        ["proposal", "r1", 2, 7, 2**64 - 2, [1, 2, 3], [1.0, 0.5, 0.25], "drafter-1", 1500, [-1, 0, 0], 2, 1],
        codec.decode_proposal,
    ),
    Example(
        VerifierCard(
            id="verifier-1",
            host="desk",
            pid=100,
            model="big",
            fingerprint="f1",
            vocabulary="v1",
            n_vocab=64,
            n_ctx=4096,
            slots=4,
            device="cuda:0",
            exactness="strict",
            exactness_note="no difference was found",
            layout="streams",
            speculation=Speculation.OFF,
            row_ms=((1, 8.5), (2, 9.25)),
            tokens_per_second=42.5,
            counters={"rounds": 3, "drafted": 9},
            accepted_per_position=(5, 3),
            drafters=(
                DrafterCounts(
                    drafter="drafter-1",
                    drafted=10,
                    accepted=8,
                    rounds=3,
                    stale=1,
                    added=2,
                    round_trip_ms=0.5,
                    asked=4,
                ),
            ),
            refused=(("drafter-2", "token 7 differs"),),
            requests=(
                RequestStatus(
                    request_id="r1",
                    offset=12,
                    tokens_per_round=2.5,
                    drafters=("drafter-1",),
                    reason="drafts do not pay",
                    tokens_per_second=40.5,
                    age_ms=300,
                ),
            ),
            draining=True,
            created=1_700_000_000,
            starts=(RoundStarts(after="refused", offset=1, rounds=5, ready=4),),
            aliases=("gpt-4o",),
            plain_tokens_per_second=20.5,
            speedup=2.125,
            tokens_per_round=3.5,
            cells=8192,
            cells_used=900,
            cells_running=800,
            site=SITE,
            can_roll_back=False,
            provisional=True,
            sharing="turns",
        ),
        [
            *("verifier", "verifier-1", "desk", 100, "big", "f1", "v1", 64, 4096, 4, "cuda:0"),
            *("strict", "no difference was found", "streams", "off", [[1, 8.5], [2, 9.25]], 42.5),
            {"rounds": 3, "drafted": 9},
            [5, 3],
            [["drafter-1", 10, 8, 3, 1, 2, 0.5, 4]],
            [["drafter-2", "token 7 differs"]],
            [["r1", 12, 2.5, ["drafter-1"], "drafts do not pay", 40.5, 300]],
            True,
            1_700_000_000,
            [["refused", 1, 5, 4]],
            ["gpt-4o"],
            *(20.5, 2.125, 3.5, 8192, 900, 800),
            PLAIN_SITE,
            False,
            True,
            "turns",
        ],
        codec.decode_card,
    ),
    Example(
        DrafterCard(
            id="drafter-1",
            host="laptop",
            pid=200,
            kind="model",
            model="small",
            fingerprint="f1",
            vocabulary="v2",
            n_vocab=64,
            device="cpu",
            capacity=8,
            sessions=2,
            tokens_per_second=90.5,
            created=1_700_000_001,
            step_ms=11.5,
            site=SITE,
            beside_step_ms=12.5,
        ),
        [
            *("drafter", "drafter-1", "laptop", 200, "model", "small", "f1", "v2", 64, "cpu", 8, 2, 90.5),
            *(1_700_000_001, 11.5, PLAIN_SITE, 12.5),
        ],
        codec.decode_card,
    ),
    Example(
        GatewayCard(
            id="gateway-1",
            host="desk",
            pid=300,
            url="http://127.0.0.1:7071",
            streams=6,
            created=1_700_000_002,
            deserted=(Deserted(model="big", requests=2, reason="no verifier is left"),),
            waiting=(("big", 3),),
        ),
        [
            *("gateway", "gateway-1", "desk", 300, "http://127.0.0.1:7071", 6, 1_700_000_002),
            *([["big", 2, "no verifier is left"]], [["big", 3]]),
        ],
        codec.decode_card,
    ),
    Example(
        Arrival(id="verifier-2", host="desk", pid=400, role="verifier", site=SITE, created=1_700_000_003),
        ["arrival", "verifier-2", "desk", 400, "verifier", PLAIN_SITE, 1_700_000_003],
        codec.decode_card,
    ),
)
TURN: Final = KeptTurn(tokens=(1, 2), text="I look.", calls=(("read", '{"path": "a"}'),))
PLAIN_TURN: Final = [[1, 2], "I look.", [["read", '{"path": "a"}']]]
ORIGIN: Final = Origin("gateway-1", "big", "r1")
PLAIN_ORIGIN: Final = ["gateway-1", "big", "r1"]
