"""Facts from a model file: its sizes, its quantisation, and its vocabulary's fingerprint.

Reads the headers of all shards, and keeps the facts in the cache folder until a file changes.
"""

import hashlib
import struct
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from shared.model import gguf_header
from shared.model.gguf_header import Header
from shared.model.model_sizes import ModelSizes, measure
from shared.model.purpose import unfit

_VERSION: Final = 2  # raise it when the facts change, so that old caches are ignored
_TOKENS: Final = "tokenizer.ggml.tokens"
_RECURRENT: Final = (".ssm.", ".wkv.", ".shortconv.")  # parts of keys of models with a recurrent state
_FALLBACK: Final = "mixed"


class Facts(ModelSizes, frozen=True, kw_only=True):
    """A model as its files describe it."""

    quant: str
    parameters: int
    unfit: str  # why it can neither answer nor draft; empty if it can
    recurrent: bool  # its state cannot drop tokens, so it can neither draft nor use drafts
    fingerprints: dict[int, str]  # of the first so many tokens of its vocabulary


def shares_vocabulary(one: Facts, other: Facts) -> bool:
    """Whether all tokens that both have are the same; the verifier accepts a drafter by the same rule."""
    common = min(one.n_tokens, other.n_tokens)
    return bool(common) and one.fingerprints.get(common) == other.fingerprints.get(common) is not None


def describe(shards: Sequence[Header], lengths: Iterable[int] = ()) -> Facts:
    """The facts of a model from the headers of its files, the first of which holds the metadata.

    `lengths` are the sizes of other vocabularies that its own may be compared with.
    """
    head = shards[0]
    sizes = measure(shards)
    texts = _texts(head)
    return Facts(
        **msgspec.structs.asdict(sizes),
        quant=_quant(head),
        parameters=sum(tensor.elements for shard in shards for tensor in shard.tensors),
        unfit=unfit(head.metadata),
        recurrent=_is_recurrent(head, sizes.architecture),
        fingerprints=prefix_fingerprints(texts, [*lengths, len(texts)]),
    )


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
    """The vocabulary as llama.cpp returns it: texts end at a NUL, and empty ones get a name."""
    tokens = head.metadata.get(_TOKENS)
    if not isinstance(tokens, list):
        return []
    texts = [token if isinstance(token, bytes) else b"" for token in tokens]
    return [text.partition(b"\0")[0] or b"[EMPTY_%d]" % token for token, text in enumerate(texts)]


def prefix_fingerprints(texts: Sequence[bytes], lengths: Iterable[int]) -> dict[int, str]:
    """`vocabulary.fingerprint` of the first n texts for each n of `lengths` that there are, in one pass."""
    wanted = {length for length in lengths if 0 < length <= len(texts)}
    found: dict[int, str] = {}
    digest = hashlib.sha256()
    for count, text in enumerate(texts, 1):
        digest.update(struct.pack("<I", len(text)) + text)
        if count in wanted:
            found[count] = digest.hexdigest()[:32]
    return found


class _Kept(msgspec.Struct, frozen=True):
    """The facts of files with these sizes and times of change."""

    size: int
    changed_ns: int
    facts: Facts


class _Book(msgspec.Struct, frozen=True):
    version: int
    models: dict[str, _Kept]  # by the first file's path


class Library:
    """The facts of many models; reads only new and changed files."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[str, _Kept] = {}
        with suppress(OSError, msgspec.MsgspecError):
            book = msgspec.json.decode(file.read_bytes(), type=_Book)
            self._known = book.models if book.version == _VERSION else {}

    def read(self, models: Sequence[Sequence[Path]]) -> list[Facts | str]:
        """For each of `models`, given by its files: the facts, or one line that says why there are none."""
        found = [self._facts(files, ()) for files in models]
        lengths = {facts.n_tokens for facts in found if isinstance(facts, Facts)}
        # Vocabularies of different sizes are compared by their common length, so each needs all smaller lengths.
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
        """Save the facts of files that still exist; a cache that cannot be written costs only time."""
        kept = {key: value for key, value in self._known.items() if key in seen or Path(key).exists()}
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._file.parent, prefix=".models-", delete=False) as file:
                file.write(msgspec.json.encode(_Book(_VERSION, kept)))
            Path(file.name).replace(self._file)
