"""Who is there: each process keeps one card alive by heartbeat and anyone can list the living.

A card that is not renewed for `CARD_TTL_MS` is gone, whatever became of its process. Vocabularies are stored under
the digest of their bytes as deflated vocabulary-only GGUFs, so that another machine needs nothing but the Redis URL.
"""

import asyncio
import hashlib
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shared import codec, keys
from shared.commands import Redis
from shared.drafts import INBOX_TTL_MS
from shared.messages import Card
from shared.vocabulary import vocabulary_gguf

CARD_TTL_MS: Final = 10_000
HEARTBEAT_S: Final = 2.0
VOCABULARY_TTL_MS: Final = 3600 * 1000
MAX_VOCABULARY_BYTES: Final = 256 << 20  # inflated; the largest known vocabulary is about 15 MB


class Registry:
    """Cards and vocabularies on one Redis."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def beat(self, card: Card) -> None:
        """Publish the card and keep the process's inbox alive for another while."""
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.set(keys.card(card.id), codec.encode(card), px=CARD_TTL_MS)
        pipeline.sadd(keys.cards(), card.id)
        pipeline.pexpire(keys.cards(), CARD_TTL_MS * 6)
        pipeline.pexpire(keys.inbox(card.id), INBOX_TTL_MS)
        await pipeline.execute()

    async def leave(self, instance: str) -> None:
        """Withdraw a card at once instead of letting it expire."""
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.delete(keys.card(instance), keys.inbox(instance))
        pipeline.srem(keys.cards(), instance)
        await pipeline.execute()

    async def ages_ms(self, instances: Sequence[str]) -> dict[str, int]:
        """How long ago each of these processes last renewed its card; those whose card has expired are left out."""
        pipeline = self._redis.pipeline(transaction=False)
        for instance in instances:
            pipeline.pttl(keys.card(instance))
        left = zip(instances, await pipeline.execute(), strict=True)
        return {instance: CARD_TTL_MS - ttl for instance, ttl in left if ttl >= 0}

    async def list(self) -> list[Card]:
        """The living, ordered by id. Cards of an unknown version are left out."""
        ids = sorted(member.decode() for member in await self._redis.smembers(keys.cards()))
        if not ids:
            return []
        values = await self._redis.mget([keys.card(instance) for instance in ids])
        cards: list[Card] = []
        dead = []
        for instance, value in zip(ids, values, strict=True):
            if value is None:
                dead.append(instance)
                continue
            try:
                cards.append(codec.decode_card(value))
            except codec.CodecError:
                continue
        if dead:
            await self._redis.srem(keys.cards(), *dead)
        return cards

    async def publish_vocabulary(self, digest: str, gguf: bytes) -> None:
        """Store a vocabulary-only GGUF under its digest."""
        await self._redis.set(keys.vocabulary(digest), zlib.compress(gguf, 6), px=VOCABULARY_TTL_MS)

    async def keep_vocabulary(self, digest: str) -> bool:
        """Renew a stored vocabulary; False if it is not there (any more)."""
        return bool(await self._redis.pexpire(keys.vocabulary(digest), VOCABULARY_TTL_MS))

    async def fetch_vocabulary(self, digest: str) -> bytes | None:
        """The vocabulary-only GGUF, or None if nobody published it. Raises `ValueError` if what lies there is none."""
        data = await self._redis.get(keys.vocabulary(digest))
        if data is None:
            return None
        inflater = zlib.decompressobj()
        try:
            gguf = inflater.decompress(data, MAX_VOCABULARY_BYTES)
        except zlib.error as error:
            raise ValueError(f"the vocabulary {digest} is damaged") from error
        if inflater.unconsumed_tail:
            raise ValueError(f"the vocabulary {digest} inflates beyond {MAX_VOCABULARY_BYTES} bytes")
        return gguf


class VocabularyKeeper:
    """Keeps one model file's vocabulary in Redis for as long as somebody calls `keep` now and then."""

    def __init__(self, registry: Registry, path: Path) -> None:
        """Reads the file's metadata. Raises `NotGGUF` or `OSError`."""
        self._registry = registry
        self._path = path
        self.digest = hashlib.sha256(vocabulary_gguf(path)).hexdigest()[:32]

    async def keep(self) -> None:
        """Renew the stored copy, or store it again if Redis lost it."""
        if not await self._registry.keep_vocabulary(self.digest):
            await self._registry.publish_vocabulary(self.digest, await asyncio.to_thread(vocabulary_gguf, self._path))
