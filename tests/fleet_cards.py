"""Cards of a small fleet: a gateway, a verifier that has asked a drafter, and that drafter; nothing runs."""

from typing import Final

from shared.wire.messages import DrafterCard, DrafterCounts, GatewayCard, Speculation, VerifierCard

HOST: Final = "box"
DRAFTER: Final = DrafterCard(
    id=f"drafter-{HOST}-12-bb",
    host=HOST,
    pid=12,
    kind="model",
    model="small-1b",
    fingerprint="f",
    vocabulary="f",
    n_vocab=1,
    device="cpu",
    capacity=8,
    sessions=1,
    tokens_per_second=50.0,
)
VERIFIER: Final = VerifierCard(
    id=f"verifier-{HOST}-11-aa",
    host=HOST,
    pid=11,
    model="big-model-70b",
    fingerprint="f",
    vocabulary="f",
    n_vocab=1,
    n_ctx=4096,
    slots=8,
    device="cuda:0",
    exactness="law",
    exactness_note="",
    layout="unified",
    speculation=Speculation.AUTO,
    row_ms=((1, 10.0), (8, 14.0)),
    drafters=(DrafterCounts(drafter=DRAFTER.id, drafted=200, accepted=150, rounds=50, stale=7, added=90),),
)
GATEWAY: Final = GatewayCard(id=f"gateway-{HOST}-13-cc", host=HOST, pid=13, url="http://127.0.0.1:7071", streams=2)
