"""Every message between processes, frozen and typed; `codec` turns them into bytes and back.

Two planes share this file but never a key: `Job` and `Chunk` are durable, everything under "hints" may be lost.
Fields are only ever appended with a default, so that processes of two releases understand each other.
"""

from enum import StrEnum
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from shared.machine.devices import Device

# Ids come from other processes: a negative or huge one must fail in the codec, not inside llama.cpp.
TokenId = Annotated[int, Meta(ge=0, lt=1 << 31)]
Count = Annotated[int, Meta(ge=0)]
Moment = Annotated[int, Meta(ge=0, lt=1 << 37)]  # unix seconds that a calendar still has; 0: unknown
Rows = Annotated[int, Meta(ge=0, le=1 << 16)]  # code loops over the rows of a decode
Hash64 = Annotated[int, Meta(ge=0)]  # MessagePack itself ends at 64 bits
Probability = Annotated[float, Meta(ge=0.0, le=1.0)]
Figure = Annotated[float, Meta(ge=0.0, le=1e9)]  # a figure about a process: neither negative nor infinite nor NaN
MAX_NAME: Final = 256
MAX_ALIASES: Final = 64  # of one verifier
Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]


class Speculation(StrEnum):
    """Whether to verify drafts: where they pay, always, or never."""

    AUTO = "auto"
    ALWAYS = "always"
    OFF = "off"


class Finish(StrEnum):
    """Why a request ended; `NONE` while it goes on."""

    NONE = ""
    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    ERROR = "error"


class Sampling(Struct, frozen=True, array_like=True, kw_only=True):
    """The sampling parameters and the seed of the noise; defaults leave the model's distribution unchanged."""

    seed: Hash64
    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] = 1.0  # below 0.001 counts as 0
    top_k: Count = 0  # 0: off
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    min_p: Probability = 0.0
    presence_penalty: Annotated[float, Meta(ge=-100.0, le=100.0)] = 0.0
    frequency_penalty: Annotated[float, Meta(ge=-100.0, le=100.0)] = 0.0
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100.0)] = 1.0
    logit_bias: tuple[tuple[TokenId, Annotated[float, Meta(ge=-1000.0, le=1000.0)]], ...] = ()
    banned: tuple[TokenId, ...] = ()  # never drawn, unless a mask leaves nothing else


# ---------------------------------------------------------------- durable plane


class ThinkingLimit(Struct, frozen=True, array_like=True, kw_only=True):
    """A bound on an answer's thinking: after `budget` tokens inside the span the verifier commits `close` itself.

    The span begins with the tokens `start` (`opened`: the prompt has begun it) and ends with `end`, as `close` does.
    """

    budget: Count
    opened: bool
    start: tuple[TokenId, ...]
    end: Annotated[tuple[TokenId, ...], Meta(min_length=1)]
    close: Annotated[tuple[TokenId, ...], Meta(min_length=1)]


class Job(Struct, frozen=True, array_like=True, kw_only=True, tag="job"):
    """One request as the verifier needs it: token ids and parameters, no text."""

    request_id: Name
    model: Name
    prompt: Annotated[tuple[TokenId, ...], Meta(min_length=1)]
    sampling: Sampling
    max_tokens: Annotated[int, Meta(ge=1)]
    speculation: Speculation = Speculation.AUTO
    top_logprobs: Annotated[int, Meta(ge=-1, le=20)] = -1  # -1: no logprobs; 0: the chosen token's only
    cache_prompt: bool = True  # share prefixes and copied text with other requests; never changes the law of the answer
    timeout_ms: Annotated[int, Meta(gt=0)] = 3_600_000
    grammar: str = ""  # the grammar of the answer, in llguidance's form; empty: none
    thinking: ThinkingLimit | None = None
    traceparent: Annotated[str, Meta(max_length=64)] = ""  # W3C Trace Context; empty: no trace
    caller: Annotated[str, Meta(max_length=64)] = ""  # a digest of the API key: only its own requests' text is copied


class TokenLogprob(Struct, frozen=True, array_like=True):
    """Log-probability of a committed token under the target, with the likeliest alternatives, best first."""

    logprob: float
    top: tuple[tuple[TokenId, float], ...] = ()


class Chunk(Struct, frozen=True, array_like=True, kw_only=True, tag="chunk"):
    """One commit in the output log. The entry id carries its end offset, so the chunk itself has none."""

    tokens: tuple[TokenId, ...]
    sources: tuple[str, ...] = ()  # per token: the drafter that guessed it; "" if the target drew it alone
    drafted: Rows = 0  # draft rows verified in this round
    accepted: Rows = 0  # of these, those that the target accepted
    reason: str = ""  # why no draft was verified, empty if some were
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: Finish = Finish.NONE
    detail: str = ""  # a fixed sentence for people when finish is an error
    cached: Count = 0  # prompt tokens taken from the prefix cache; in the first chunk of each claim
    tried: Rows = 0  # the number of this round's offsets at which a draft was compared with the target's draw


# ---------------------------------------------------------------- hints: verifier to drafter


class Open(Struct, frozen=True, array_like=True, kw_only=True, tag="open"):
    """A request to draft for.

    The prompt is in the job; `committed` holds the tokens decided so far. Guesses that the target reaches with less
    than the probability `worth` are not worth drafting.
    """

    request_id: Name
    reply_to: Name  # the verifier whose inbox takes proposals
    epoch: Count
    eog: tuple[TokenId, ...]
    n_vocab: Count  # ids at or above are never proposed
    lead: Annotated[int, Meta(ge=0, le=1024)]
    committed: tuple[TokenId, ...] = ()
    worth: Probability = 0.03


class Commit(Struct, frozen=True, array_like=True, kw_only=True, tag="commit"):
    """The target decided `tokens` after offset `base`; keep `lead` tokens beyond.

    The verifier waits for `want` tokens, so they should come in one message; 0: it does not wait. If `want` is not
    below `lead`, it does nothing else until they are there, and leaves the drafter all cores that they share. `worth`
    replaces the one in `Open`; 0: it stays.
    """

    request_id: Name
    epoch: Count
    base: Count
    tokens: tuple[TokenId, ...]
    lead: Annotated[int, Meta(ge=0, le=1024)]
    want: Annotated[int, Meta(ge=0, le=1024)] = 0
    worth: Probability = 0.0


class Close(Struct, frozen=True, array_like=True, kw_only=True, tag="close"):
    """Stop drafting for a request."""

    request_id: Name


# ---------------------------------------------------------------- hints: drafter to verifier


class Proposal(Struct, frozen=True, array_like=True, kw_only=True, tag="proposal"):
    """A tree of guesses after the prefix that `base` and `prefix_hash` name.

    `parents` has for each token the index of the one that it follows, -1 for the prefix; empty: a chain. Tokens that
    follow the same one are alternatives, likeliest first. `scores` are the drafter's confidence per token in [0, 1];
    the verifier calibrates them per drafter. `step_us` is the present time of one step of the drafter, in microseconds
    (0: nothing to wait for), and its next message brings `batch` steps (0: it rests until the next hint). The last
    `copied` tokens are copies of earlier text after the drafter's own guesses; they are calibrated separately.
    """

    request_id: Name
    epoch: Count
    base: Count
    prefix_hash: Hash64
    tokens: Annotated[tuple[TokenId, ...], Meta(min_length=1, max_length=256)]
    scores: Annotated[tuple[Probability, ...], Meta(min_length=1, max_length=256)]
    drafter: Name
    step_us: Count = 0
    parents: Annotated[tuple[Annotated[int, Meta(ge=-1, lt=256)], ...], Meta(max_length=256)] = ()
    batch: Count = 1
    copied: Count = 0


# ---------------------------------------------------------------- cards: who is there


class RequestStatus(Struct, frozen=True, array_like=True, kw_only=True):
    """One running request as `status` shows it."""

    request_id: Name
    offset: Count
    tokens_per_round: float
    drafters: tuple[str, ...] = ()
    reason: str = ""  # why it is not speculating; empty if it is
    tokens_per_second: Figure = 0.0  # since its first token
    age_ms: Count = 0  # since its verifier took it


class DrafterCounts(Struct, frozen=True, array_like=True, kw_only=True):
    """The counts of one drafter's proposals at one verifier since it started."""

    drafter: Name
    drafted: Count
    accepted: Count
    rounds: Count
    stale: Count
    added: Count = 0  # accepted tokens that no other drafter of the request had guessed
    round_trip_ms: Figure = 0.0  # from a commit to the drafter's answer, without its steps; 0: not known
    asked: Count = 0  # rounds of the requests that it drafted for, with drafts of its own or without


class RoundStarts(Struct, frozen=True, array_like=True, kw_only=True):
    """How rounds began, by what ended the round before."""

    after: str  # "plain" (no drafts), "accepted" (all of them) or "refused"
    offset: Count  # of the refusal in that round; 0 otherwise
    rounds: Count
    ready: Count  # of these, those that found drafts ready


class Site(Struct, frozen=True, array_like=True, kw_only=True):
    """Where a process computes, in terms that are the same for all processes of one machine, containers included."""

    machine: str = ""  # from `shared.machine.resources`; empty: it does not affect other processes
    quota: str = ""  # the control group whose share of time it uses, if any
    devices: Annotated[tuple[Device, ...], Meta(max_length=256)] = ()  # GPUs
    cores: Annotated[str, Meta(pattern="^[0-9a-f]*$", max_length=4096)] = (
        ""  # a mask of the cores on which it may compute, if any
    )
    threads: Count = 0  # threads that it took on these, beside others that compute; 0: it is still choosing
    most: Count = 0  # threads that it takes while those others rest; 0: no more


NOWHERE: Final = Site()


class VerifierCard(Struct, frozen=True, array_like=True, kw_only=True, tag="verifier"):
    """A verifier's heartbeat: what it serves, how, and what it counted."""

    id: Name
    host: str
    pid: Count
    model: Name
    fingerprint: Name  # of the token ids' texts
    vocabulary: Name  # the key of the vocabulary-only GGUF, which has the chat template
    n_vocab: Count
    n_ctx: Count  # tokens one request may use, prompt and answer
    slots: Annotated[int, Meta(ge=0, le=4096)]
    device: str
    exactness: str  # "strict" or "law"
    exactness_note: str
    layout: str  # "streams" or "unified"
    speculation: Speculation
    row_ms: tuple[tuple[Count, float], ...] = ()  # measured decode time by row count
    tokens_per_second: float = 0.0
    counters: dict[str, Count] = {}
    accepted_per_position: tuple[Count, ...] = ()
    drafters: tuple[DrafterCounts, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()  # drafter id, reason
    requests: tuple[RequestStatus, ...] = ()
    draining: bool = False
    created: Moment = 0  # unix seconds, stable for the life of the process
    starts: tuple[RoundStarts, ...] = ()
    aliases: Annotated[tuple[Name, ...], Meta(max_length=MAX_ALIASES)] = ()  # other names that it claims for its model
    plain_tokens_per_second: Figure = 0.0  # what plain decoding would give in the same time for the same requests
    speedup: Figure = 0.0  # over plain decoding, of the last rounds, however long ago; 0: none yet
    tokens_per_round: Figure = 0.0  # per request, of the same rounds
    cells: Count = 0  # tokens that fit in the KV cache
    cells_used: Count = 0  # how many of these are held, for running requests and as prefix cache
    cells_running: Count = 0  # how many of these are for running requests
    site: Site = NOWHERE
    can_roll_back: bool = True  # False: a recurrent or hybrid model, which takes no drafts
    provisional: bool = False  # `row_ms` was measured on a busy machine, and will be measured again
    sharing: str = ""  # how it shares cores or a device with drafters: "turns", "beside"; empty: with none


class DrafterCard(Struct, frozen=True, array_like=True, kw_only=True, tag="drafter"):
    """A drafter's heartbeat. An empty fingerprint means that it needs no vocabulary (lookup)."""

    id: Name
    host: str
    pid: Count
    kind: Name  # "model" or "lookup"
    model: str
    fingerprint: str
    vocabulary: str
    n_vocab: Count
    device: str
    capacity: Count
    sessions: Count
    tokens_per_second: float
    created: Moment = 0  # as a verifier's
    step_ms: Figure = 0.0  # time of a step with one row, measured at the start; 0: not measured, or no model
    site: Site = NOWHERE
    beside_step_ms: Figure = 0.0  # the same with its share of cores that it has beside a target; 0: no other


class Deserted(Struct, frozen=True, array_like=True, kw_only=True):
    """Requests of one gateway whose model lost its last verifier."""

    model: Name
    requests: Count
    reason: str  # for people: why they wait, and how long they will


class GatewayCard(Struct, frozen=True, array_like=True, kw_only=True, tag="gateway"):
    """A gateway's heartbeat."""

    id: Name
    host: str
    pid: Count
    url: str
    streams: Count
    created: Moment = 0  # as a verifier's
    deserted: tuple[Deserted, ...] = ()
    waiting: tuple[tuple[str, Count], ...] = ()  # by model, the requests that no verifier has taken yet


class Arrival(Struct, frozen=True, array_like=True, kw_only=True, tag="arrival"):
    """A verifier or drafter that has chosen where to compute, or is about to, and does not serve yet."""

    id: Name
    host: str
    pid: Count
    role: Literal["verifier", "drafter"]
    site: Site
    created: Moment = 0  # as a verifier's


Card = VerifierCard | DrafterCard | GatewayCard
Announced = Card | Arrival
Hint = Open | Commit | Close
