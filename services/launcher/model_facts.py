"""What a model file says of itself: size by layer, cache per token, trained context, and its vocabulary's fingerprint.

Read from the headers of all its shards, and kept in the cache folder until a file changes. Metadata keys: ggml's
`docs/gguf.md` and llama.cpp's `llama-arch.cpp`.
"""

import hashlib
import re
import struct
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from services.launcher import gguf_header
from services.launcher.gguf_header import Header
from shared.vocabulary import NotGGUF

_VERSION: Final = 1  # raise it when what is read changes, so that old caches are not believed
_LAYER: Final = re.compile(r"blk\.(\d+)\.")
_INPUT: Final = "token_embd.weight"
_OUTPUT: Final = "output.weight"
_TOKENS: Final = "tokenizer.ggml.tokens"
_RECURRENT: Final = (".ssm.", ".wkv.", ".shortconv.")  # parts of keys that only models with a recurrent state have
_MOST_LAYERS: Final = 4096  # the deepest known models have some 130
_FALLBACK: Final = "mixed"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """A model as its files describe it; sizes in bytes."""

    architecture: str
    quant: str
    parameters: int
    context: int  # tokens it was trained for; 0: it does not say
    embedding: int  # width of a token's vector
    layers: tuple[int, ...]  # weights of each layer
    output: int  # weights behind the last layer
    input: int  # the table of the tokens' vectors
    tied: bool  # the table also stands for the output's weights
    cache: tuple[int, ...]  # numbers that each layer caches for a token, keys and values together
    recurrent: bool  # its state cannot drop tokens: neither drafter nor sped up by drafts
    n_tokens: int
    fingerprints: dict[int, str]  # of the first so many tokens of its vocabulary

    @property
    def weights(self) -> int:
        return sum(self.layers) + self.output + self.input


def shares_vocabulary(one: Facts, other: Facts) -> bool:
    """Whether all tokens that both have are the same, by which the verifier judges a drafter."""
    common = min(one.n_tokens, other.n_tokens)
    return bool(common) and one.fingerprints.get(common) == other.fingerprints.get(common) is not None


def describe(shards: Sequence[Header], lengths: Iterable[int] = ()) -> Facts:
    """The facts of a model from the headers of its files, the first of which holds the metadata.

    `lengths` are the sizes of other vocabularies that its own may be compared with.
    """
    head = shards[0]
    architecture = head.text("general.architecture")
    tensors = [tensor for shard in shards for tensor in shard.tensors]
    count = head.number(f"{architecture}.block_count")
    if not 0 <= count <= _MOST_LAYERS:
        raise NotGGUF(f"{count} layers")
    layers = [0] * count
    output = 0
    for tensor in tensors:
        match = _LAYER.match(tensor.name)
        if match and int(match[1]) < count:
            layers[int(match[1])] += tensor.size
        elif tensor.name != _INPUT:
            output += tensor.size
    texts = _texts(head)
    return Facts(
        architecture=architecture,
        quant=_quant(head),
        parameters=sum(tensor.elements for tensor in tensors),
        context=head.number(f"{architecture}.context_length"),
        embedding=head.number(f"{architecture}.embedding_length"),
        layers=tuple(layers),
        output=output,
        input=sum(tensor.size for tensor in tensors if tensor.name == _INPUT),
        tied=all(tensor.name != _OUTPUT for tensor in tensors),
        cache=_cached_numbers(head, architecture, count),
        recurrent=_is_recurrent(head, architecture),
        n_tokens=len(texts),
        fingerprints=prefix_fingerprints(texts, [*lengths, len(texts)]),
    )


def _cached_numbers(head: Header, architecture: str, count: int) -> tuple[int, ...]:
    """Keys and values per token and layer. Sliding windows save nothing here: we keep all to be able to roll back."""

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
        both = (
            head.numbers(key("key_length"), count, size)[layer] + head.numbers(key("value_length"), count, size)[layer]
        )
        attends = layer < count - shared and (not interval or (layer + 1) % interval == 0)
        own = heads[layer] if kv_heads[layer] < 0 else kv_heads[layer]
        numbers.append(own * both if attends else 0)
    return tuple(numbers)


def _is_recurrent(head: Header, architecture: str) -> bool:
    return any(part in key for key in head.metadata if key.startswith(f"{architecture}.") for part in _RECURRENT)


def _quant(head: Header) -> str:
    from gguf import LlamaFileType  # half a second, and only files that are new here pay it

    try:
        name = str(LlamaFileType(head.number("general.file_type", -1)).name)
    except ValueError:
        return _FALLBACK
    return name.removeprefix("MOSTLY_").removeprefix("ALL_")


def _texts(head: Header) -> list[bytes]:
    """The vocabulary as llama.cpp gives it out: texts end at a NUL, and empty ones get a name."""
    tokens = head.metadata.get(_TOKENS)
    if not isinstance(tokens, list):
        return []
    texts = [token if isinstance(token, bytes) else b"" for token in tokens]
    return [text.partition(b"\0")[0] or b"[EMPTY_%d]" % token for token, text in enumerate(texts)]


def prefix_fingerprints(texts: Sequence[bytes], lengths: Iterable[int]) -> dict[int, str]:
    """`shared.vocabulary.fingerprint` of the first n texts for each n of `lengths` that there are, in one pass."""
    wanted = {length for length in lengths if 0 < length <= len(texts)}
    found: dict[int, str] = {}
    digest = hashlib.sha256()
    for count, text in enumerate(texts, 1):
        digest.update(struct.pack("<I", len(text)) + text)
        if count in wanted:
            found[count] = digest.hexdigest()[:32]
    return found


class _Kept(msgspec.Struct, frozen=True):
    """Facts of files that had this size and were changed then."""

    size: int
    changed_ns: int
    facts: Facts


class _Book(msgspec.Struct, frozen=True):
    version: int
    models: dict[str, _Kept]  # by the first file's path


class Library:
    """The facts of many models, of which only new and changed files are read."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[str, _Kept] = {}
        with suppress(OSError, msgspec.MsgspecError):
            book = msgspec.json.decode(file.read_bytes(), type=_Book)
            self._known = book.models if book.version == _VERSION else {}

    def read(self, models: Sequence[Sequence[Path]]) -> list[Facts | str]:
        """For each of `models`, given by its files, the facts; or, in one line, why there are none."""
        found = [self._facts(files, ()) for files in models]
        lengths = {facts.n_tokens for facts in found if isinstance(facts, Facts)}
        # Vocabularies of different sizes are compared by what they have in common, so each needs all smaller lengths.
        found = [self._facts(files, lengths) for files in models]
        self._save({str(files[0].absolute()) for files in models})
        return found

    def _facts(self, files: Sequence[Path], lengths: Iterable[int]) -> Facts | str:
        try:
            stats = [file.stat() for file in files]
            size, changed_ns = sum(stat.st_size for stat in stats), max(stat.st_mtime_ns for stat in stats)
            key = str(files[0].absolute())
            kept = self._known.get(key)
            if kept and (kept.size, kept.changed_ns) == (size, changed_ns):
                facts = kept.facts
                if all(length in facts.fingerprints for length in lengths if length < facts.n_tokens):
                    return facts
                lengths = {*lengths, *facts.fingerprints}
            facts = describe([gguf_header.read(file) for file in files], lengths)
        except (OSError, ValueError) as error:
            return " ".join(str(error).split())
        self._known[key] = _Kept(size, changed_ns, facts)
        return facts

    def _save(self, seen: set[str]) -> None:
        """Keep what is still there; a cache that cannot be written costs only time."""
        kept = {key: value for key, value in self._known.items() if key in seen or Path(key).exists()}
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._file.parent, prefix=".models-", delete=False) as file:
                file.write(msgspec.json.encode(_Book(_VERSION, kept)))
            Path(file.name).replace(self._file)
