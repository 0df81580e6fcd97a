"""The registry of processes: each keeps one card alive by heartbeat, and any process can list the living ones.

A card that is not renewed for `CARD_TTL_MS` is gone, whatever happened to its process. Drafters are listed apart from
the others, and readers bound what a drafter may write, so that one that floods the list hides only newcomers.
Vocabularies are stored deflated under the digest of their bytes, so that another machine needs only the Redis URL. A
target's is a GGUF without tensors, a draft model's is its tokens' texts, because llama.cpp's parser must not read data
that a drafter sent.
"""

import asyncio
import hashlib
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from redis.exceptions import NoPermissionError

from shared.model.vocabulary import pack, unpack, vocabulary_gguf
from shared.wire import codec, keys
from shared.wire.commands import Pipeline, Redis
from shared.wire.connection import RefusedError
from shared.wire.messages import MAX_NAME, Announced, Arrival, Card, DrafterCard, GatewayCard, VerifierCard

CARD_TTL_MS: Final = 10_000
HEARTBEAT_S: Final = 2.0
VOCABULARY_TTL_MS: Final = 3600 * 1000
SERVED_TTL_MS: Final = 24 * 3600 * 1000  # how long a name is remembered after it was last served
MAX_VOCABULARY_BYTES: Final = 256 << 20  # inflated; the largest known vocabulary is about 15 MB
MAX_DEFLATED_BYTES: Final = 16 << 20
MAX_DRAFTERS: Final = 256  # in the list; a longer one is cleared, and the living add themselves again
MAX_DRAFTER_CARD: Final = 64 << 10  # bytes


@dataclass(frozen=True, slots=True)
class LastServed:
    """A name that meant `model` when it was last served, `ago_s` seconds ago."""

    model: str
    ago_s: float


class Registry:
    """Cards and vocabularies on one Redis."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._own: tuple[str, str] | None = None  # the list and the id of the card that this process renews
        self._met: set[str] = set()  # ids of the drafters that lived at the last look

    async def beat(self, card: Announced) -> None:
        """Publish the card, or the arrival before it."""
        drafts = isinstance(card, DrafterCard) or (isinstance(card, Arrival) and card.role == "drafter")
        self._own = (keys.drafters() if drafts else keys.cards(), card.id)
        pipeline = self._redis.pipeline(transaction=True)  # otherwise the list might keep no TTL
        pipeline.set(keys.card(card.id), codec.encode(card), px=CARD_TTL_MS)
        self._write(pipeline)
        await pipeline.execute()

    async def leave(self, instance: str) -> None:
        """Withdraw a card, and a drafter's inbox, at once instead of letting them expire."""
        self._own = None
        await self._redis.delete(keys.card(instance), keys.inbox(instance))

    async def ages_ms(self, instances: Sequence[str]) -> dict[str, int]:
        """How long ago each of these processes last renewed its card; without those whose card has expired.

        Raises `RefusedError` while Redis takes no writes: then nobody can renew a card, and ages say nothing.
        """
        pipeline = self._redis.pipeline(transaction=True)  # for the write, as in `beat`
        for instance in instances:
            pipeline.pttl(keys.card(instance))
        self._write(pipeline)
        left = zip(instances, await pipeline.execute(), strict=False)  # without those to the write
        return {instance: CARD_TTL_MS - ttl for instance, ttl in left if ttl >= 0}

    async def announced(self) -> list[Announced]:
        """The processes that serve and those about to, ordered by id.

        Skips cards of an unknown version, and cards under another process's id or of another kind than it says. Raises
        `RefusedError` if a card has expired while Redis takes no writes, because its process may live.
        """
        lists = self._redis.pipeline(transaction=False)
        lists.smembers(keys.cards())
        lists.srandmember(keys.drafters(), MAX_DRAFTERS + 1)
        others, drafters = await lists.execute()
        with suppress(NoPermissionError):  # a user that may only read need not tidy
            if len(drafters) > MAX_DRAFTERS or any(len(member) > MAX_NAME for member in drafters):
                await self._redis.delete(keys.drafters())
        cards, dead = await self._read(others, -1)
        met, left = await self._read({*drafters, *(name.encode() for name in self._met)}, MAX_DRAFTER_CARD)
        self._met = {card.id for card in met}
        if dead or left:
            await self._strike({keys.cards(): dead, keys.drafters(): left})
        return sorted([*cards, *met], key=lambda card: card.id)

    async def _read(self, members: Collection[bytes], most: int) -> tuple[list[Announced], list[bytes]]:
        """The cards of these processes, without those of more than `most` bytes, and the members that have none."""
        names = {member: member.decode(errors="replace") for member in sorted(members) if len(member) <= MAX_NAME}
        pipeline = self._redis.pipeline(transaction=False)
        for name in names.values():
            pipeline.getrange(keys.card(name), 0, most)
        values = await pipeline.execute(raise_on_error=False) if names else []
        cards = []
        dead = []
        for (member, name), value in zip(names.items(), values, strict=True):
            if value == b"":
                dead.append(member)
            elif isinstance(value, RefusedError):
                raise value
            elif isinstance(value, bytes):
                with suppress(codec.CodecError):
                    card = codec.decode_card(value)
                    if card.id == name and _is_its_kind(card):
                        cards.append(card)
        return cards, dead

    async def _strike(self, dead: Mapping[str, Sequence[bytes]]) -> None:
        """Take the dead off their lists, as far as this process may."""
        pipeline = self._redis.pipeline(transaction=True)
        self._write(pipeline)
        for members, gone in dead.items():
            if gone:
                pipeline.srem(members, *gone)
        with suppress(NoPermissionError):  # a user that may only read need not tidy
            await pipeline.execute()

    def _write(self, pipeline: Pipeline) -> None:
        """Add a part of a heartbeat, which Redis refuses whenever it would refuse the whole."""
        if self._own:
            members, instance = self._own
            pipeline.sadd(members, instance)
            pipeline.pexpire(members, CARD_TTL_MS * 6)

    async def list(self) -> list[Card]:
        """The processes that serve."""
        return [card for card in await self.announced() if not isinstance(card, Arrival)]

    async def remember(self, card: VerifierCard) -> None:
        """Record that the names of this verifier are served now. Does nothing on a server whose access rules do not
        allow it."""
        pipeline = self._redis.pipeline(transaction=False)
        for name in (card.model, *card.aliases):
            pipeline.set(keys.served(name), card.model.encode(), px=SERVED_TTL_MS)
        with suppress(NoPermissionError):
            await pipeline.execute()

    async def last_served(self, name: str) -> LastServed | None:
        """The model that the name last meant, and when; None if it was not served for a day."""
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.get(keys.served(name))
        pipeline.pttl(keys.served(name))
        try:
            model, left_ms = await pipeline.execute()
        except NoPermissionError:
            return None
        return LastServed(model.decode(errors="replace"), max(0, SERVED_TTL_MS - left_ms) / 1000) if model else None

    async def publish(self, key: str, data: bytes) -> None:
        packed = await asyncio.to_thread(zlib.compress, data, 1)
        await self._redis.set(key, packed, px=VOCABULARY_TTL_MS)

    async def renew(self, key: str) -> bool:
        """Renew a stored vocabulary; False if it does not exist."""
        return bool(await self._redis.pexpire(key, VOCABULARY_TTL_MS))

    async def fetch_vocabulary(self, digest: str) -> bytes | None:
        """A target's vocabulary-only GGUF, or None if it is not published.

        Raises `ValueError` if its key holds something else.
        """
        return await self._fetch(keys.vocabulary(digest), digest)

    async def fetch_texts(self, drafter: str, digest: str) -> Sequence[bytes] | None:
        """The texts of a drafter's tokens. Like `fetch_vocabulary`."""
        data = await self._fetch(keys.draft_vocabulary(drafter, digest), digest)
        return None if data is None else unpack(data)

    async def _fetch(self, key: str, digest: str) -> bytes | None:
        data = await self._redis.getrange(key, 0, MAX_DEFLATED_BYTES)
        if not data:
            return None
        inflater = zlib.decompressobj()
        try:
            inflated = inflater.decompress(data, MAX_VOCABULARY_BYTES)
        except zlib.error as error:
            raise ValueError(f"the vocabulary {digest} is damaged") from error
        if inflater.unconsumed_tail:
            raise ValueError(f"the vocabulary {digest} inflates beyond {MAX_VOCABULARY_BYTES} bytes")
        if content_digest(inflated) != digest:
            raise ValueError(f"the vocabulary {digest} has another digest than its name says")
        return inflated


def content_digest(data: bytes) -> str:
    """The name of a stored vocabulary."""
    return hashlib.sha256(data).hexdigest()[:32]


def _is_its_kind(card: Announced) -> bool:
    """Whether the card is of the service with which its id begins.

    A server's access rules let each service write cards only under its own name.
    """
    service = card.id.partition("-")[0]
    kind = _KINDS.get(service)
    return kind is None or isinstance(card, kind) or (isinstance(card, Arrival) and card.role == service)


_KINDS: Final[dict[str, type[Card]]] = {"gateway": GatewayCard, "verifier": VerifierCard, "drafter": DrafterCard}


class VocabularyKeeper:
    """Keeps a vocabulary in Redis as long as its owner calls `keep` now and then."""

    def __init__(self, registry: Registry, key: Callable[[str], str], make: Callable[[], bytes]) -> None:
        """`make` always returns the same bytes; `key` gives their Redis key from their digest."""
        self._registry = registry
        self._make = make
        self.digest = content_digest(make())
        self._key = key(self.digest)

    async def keep(self) -> None:
        """Renew the stored copy, or store it again if Redis lost it."""
        if not await self._registry.renew(self._key):
            await self._registry.publish(self._key, await asyncio.to_thread(self._make))


def target_keeper(registry: Registry, path: Path, chat_template: str = "") -> VocabularyKeeper:
    """The keeper of a target's vocabulary, from its model file; a `chat_template` replaces the file's own.

    Raises `NotGGUF` or `OSError`.
    """
    return VocabularyKeeper(registry, keys.vocabulary, lambda: vocabulary_gguf(path, chat_template))


def draft_keeper(registry: Registry, drafter: str, texts: Sequence[bytes]) -> VocabularyKeeper:
    """The keeper of a drafter's vocabulary."""
    packed = pack(texts)
    return VocabularyKeeper(registry, partial(keys.draft_vocabulary, drafter), lambda: packed)
