"""A language of 151,936 tokens in which the next token's law depends on the last token alone, and a model file of it.

Every token is in one of `STATES` states, and each state has a row of logits as spread as a real model's. So a target
can take its rows from a table, and a real model of llama.cpp can compute nearly the same rows: its embedding of a token
names the state, and its output matrix holds the table.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from gguf import GGUFWriter, TokenType

from shared.law import sampling
from shared.law.sampling import Logits
from shared.wire.messages import Sampling

TOKENS: Final = 151_936  # as Qwen2.5 has
STATES: Final = 64
END: Final = 0  # the end of generation; it is so unlikely that no answer ends by itself
_SEED: Final = 16
_LIKELY: Final = 40  # candidates of a state, above the bulk of the vocabulary
_BULK_NATS: Final = 2.0  # standard deviation of the bulk's logits
_TOP: Final = 17.0  # the best candidate's logit: the whole bulk then has about 5 % of the probability
_STEP_NATS: Final = 1.3  # mean distance from one candidate to the next
_LEAST: Final = 6.0  # no candidate lies below this
_UNLIKE_NATS: Final = 0.7  # by how much the draft model's logits of candidates differ
_CONTEXT: Final = 8192

Table = npt.NDArray[np.float32]  # [STATES, TOKENS]


def table() -> Table:
    """The rows of logits by state, the same on every call; read-only."""
    random = np.random.default_rng(_SEED)
    rows = random.standard_normal((STATES, TOKENS), np.float32) * np.float32(_BULK_NATS)
    for row in rows:
        row[_candidates(random)] = _heights(random)
    rows[:, END] = -30.0
    rows.flags.writeable = False
    return rows


def _candidates(random: np.random.Generator) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = random.choice(np.arange(1, TOKENS), _LIKELY, replace=False)
    return found


def _heights(random: np.random.Generator) -> Logits:
    steps = random.exponential(_STEP_NATS, _LIKELY)
    steps[0] = 0.0
    heights: Logits = np.maximum(_TOP - np.cumsum(steps), _LEAST).astype(np.float32)
    return heights


def after(rows: Table, token: int) -> Logits:
    """The logits after a token."""
    row: Logits = rows[token % len(rows)]
    return row


def answer(rows: Table, last: int, law: Sampling) -> Iterator[int]:
    """The plain answer to a prompt that ends with the token `last`. Its law may not depend on earlier tokens."""
    laws: dict[int, sampling.Law] = {}
    offset = 0
    while True:
        state = last % len(rows)
        if state not in laws:
            laws[state] = sampling.law(rows[state], law)
        last = sampling.draw(laws[state], law.seed, offset).token
        yield last
        offset += 1


def draft_model(path: Path) -> Path:
    """A draft model of this language, written to `path` if it is missing: right some eight times in ten."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".part")
        _write(temporary, _unlike(table()))
        temporary.replace(path)
    return path


def _unlike(rows: Table) -> Table:
    random = np.random.default_rng(_SEED + 1)
    likely = rows >= _LEAST
    noise = random.standard_normal(int(likely.sum()), np.float32) * np.float32(_UNLIKE_NATS)
    found = rows.copy()
    found[likely] += noise
    return found


def _texts() -> list[bytes]:
    """The end, a token for each byte as GPT-2 writes it, so that any text can be tokenised, and tokens with numbers."""
    plain = [byte for byte in range(256) if chr(byte).isprintable() and byte not in (0x20, 0xAD)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = [*map(chr, plain), *(chr(256 + index) for index in range(len(others)))]
    texts = ["<end>", *letters]
    return [text.encode() for text in (*texts, *(f"t{token}" for token in range(len(texts), TOKENS)))]


def _write(path: Path, rows: Table) -> None:
    """One layer whose attention and feed-forward add nothing, so that the output sees the embedding alone."""
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(_CONTEXT)
    writer.add_embedding_length(STATES)
    writer.add_feed_forward_length(STATES)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(STATES)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(_texts())
    writer.add_token_types([TokenType.CONTROL, *[TokenType.NORMAL] * (TOKENS - 1)])
    writer.add_token_merges(["t 1"])
    writer.add_bos_token_id(END)
    writer.add_eos_token_id(END)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(STATES, np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros((STATES, STATES), np.float16))
    embedding = np.zeros((TOKENS, STATES), np.float16)
    embedding[np.arange(TOKENS), np.arange(TOKENS) % STATES] = 1.0
    writer.add_tensor("token_embd.weight", embedding)
    # The norm makes of a single 1 among `STATES` numbers the root of `STATES`.
    writer.add_tensor("output.weight", np.ascontiguousarray(rows.T / np.float32(STATES**0.5)).astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
