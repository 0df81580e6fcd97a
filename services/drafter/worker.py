"""The drafter's loops: read hints, step while there is work, send guesses as they come, and publish its card.

Nothing here can fail a request: lost or late messages cost only acceptance. After a gap in the commits the drafter
reads the request's log again.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import structlog
from msgspec.structs import replace
from redis.exceptions import ResponseError

from services.drafter.proposer import Draft, Opening, Proposer, join
from shared.fleet.registry import Registry
from shared.process import lifecycle
from shared.process.ready_file import ReadyFile
from shared.wire import codec, drafts, keys
from shared.wire.broker import DISCONNECTED, Broker, Reconnect
from shared.wire.messages import Close, Commit, DrafterCard, Hint, Open, Proposal
from shared.wire.reading import read_job, read_log

logger = structlog.get_logger()


class DrafterWorker:
    def __init__(
        self,
        broker: Broker,
        proposer: Proposer,
        card: DrafterCard,
        keep: Callable[[], Awaitable[None]] = lifecycle.nothing,
        ready_file: str = "",
    ) -> None:
        """Each heartbeat publishes `card` with the present load, and calls `keep`."""
        self._keep = keep
        self._redis = broker.redis
        self._proposer = proposer
        self._registry = Registry(broker.redis)
        self._card = card
        self._instance = card.id
        self._inbox = drafts.Inbox(broker.redis, broker.blocking, self._instance)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="drafter")
        self._hints: list[Hint] = []
        self._news = asyncio.Event()
        self._requests: dict[str, Open] = {}
        self._drafted: Counter[str] = Counter()  # tokens sent, by request
        self._stopping = False
        self._tokens = 0
        self._rate = 0.0
        self._ready_file = ReadyFile(ready_file)

    async def run(self, stop: asyncio.Event) -> None:
        """Draft until `stop`, then leave."""
        # Loading takes long, and Redis may have gone away meanwhile.
        await lifecycle.insist("start", self._enter, stop)
        beats = partial(lifecycle.heartbeat, self._registry, self._current_card, self._tidy)
        async with lifecycle.Loops() as loops:
            loops.start(partial(self._inbox.run, self._receive), name="inbox")
            loops.start(beats, name="heartbeat")
            loops.start(self._measure, name="measure")
            drafting = loops.start(self._draft, name="draft")
            loops.start(self._ready_file.run, name="ready file")
            await stop.wait()
            self._ready_file.end()
            loops.let_end()
            self._stopping = True
            self._news.set()
            await drafting
            loops.cancel()
        with contextlib.suppress(*DISCONNECTED):
            await self._registry.leave(self._instance)
        self._thread.shutdown()

    async def _enter(self) -> None:
        await self._keep()
        await self._inbox.open()
        await self._registry.beat(self._current_card())

    def _current_card(self) -> DrafterCard:
        return replace(self._card, sessions=self._proposer.sessions, tokens_per_second=self._rate)

    async def _measure(self) -> None:
        while True:
            before = self._tokens
            await asyncio.sleep(2.0)
            self._rate = (self._tokens - before) / 2.0

    async def _tidy(self) -> None:
        """With every heartbeat, end sessions whose `Close` was lost, because a killed verifier never sends one."""
        await self._keep()
        await self._inbox.renew()
        requests = list(self._requests)
        pipeline = self._redis.pipeline(transaction=False)
        for request_id in requests:
            pipeline.hget(keys.job(request_id), "state")
        try:
            states = await pipeline.execute() if requests else []
        except ResponseError as error:  # a key does not hold a job; its verifier will close the session
            logger.warning("job_states_unreadable", error=type(error).__name__)
            return
        over = [name for name, state in zip(requests, states, strict=True) if state != b"running"]
        if over:
            self._receive([Close(request_id=request_id) for request_id in over])

    def _receive(self, hints: list[Hint]) -> None:
        self._hints += hints
        self._news.set()

    async def _draft(self) -> None:
        loop = asyncio.get_running_loop()
        reconnect = Reconnect("draft")
        found: list[Draft] = []
        while not self._stopping:
            self._news.clear()
            await self._take_hints(loop)
            try:
                if self._proposer.busy:
                    batch = self._proposer.burst
                    # Send the guesses of the last step while the next one computes.
                    step = loop.run_in_executor(self._thread, self._burst, batch)
                    try:
                        await self._publish(found, batch)
                    finally:
                        found = await step
                    reconnect.succeeded()
                    continue
                await self._publish(found, 1)
            except DISCONNECTED as error:
                await reconnect.failed(error)
            found = []
            await self._news.wait()

    def _burst(self, steps: int) -> list[Draft]:
        """Take up to `steps` steps, until a hint comes, there is nothing to do, or a copy is found."""
        found: list[Draft] = []
        for _ in range(steps):
            drafts = self._proposer.step()
            found += drafts
            # A copy is sent at once, because it may hold all the tokens that a verifier waits for.
            if self._hints or not self._proposer.busy or any(draft.copied for draft in drafts):
                break
        return join(found)

    async def _publish(self, found: list[Draft], batch: int) -> None:
        """Send the guesses; the next message of a session that does not rest follows after `batch` steps."""
        messages: list[tuple[str, Proposal]] = []
        for draft in found:
            opened = self._requests.get(draft.request_id)
            if opened is None:
                continue
            self._tokens += len(draft.tokens) - draft.copied  # copies take no time
            self._drafted[draft.request_id] += len(draft.tokens)
            proposal = Proposal(
                request_id=draft.request_id,
                epoch=opened.epoch,
                base=draft.base,
                prefix_hash=draft.prefix_hash,
                tokens=draft.tokens,
                scores=draft.scores,
                drafter=self._instance,
                step_us=self._proposer.step_us,
                parents=draft.parents,
                batch=0 if draft.rests else batch,
                copied=draft.copied,
            )
            messages.append((opened.reply_to, proposal))
        await drafts.propose(self._redis, self._instance, messages)

    async def _take_hints(self, loop: asyncio.AbstractEventLoop) -> None:
        hints, self._hints = self._hints, []
        for hint in hints:
            if isinstance(hint, Open):
                await self._open(loop, hint)
            elif isinstance(hint, Commit):
                opened = self._requests.get(hint.request_id)
                if opened is None or opened.epoch != hint.epoch:
                    continue
                if not self._readable(hint.tokens):
                    await self._close(loop, hint.request_id)
                    continue
                known = await loop.run_in_executor(
                    self._thread,
                    self._proposer.commit,
                    hint.request_id,
                    hint.base,
                    hint.tokens,
                    hint.lead,
                    hint.want,
                    hint.worth,
                )
                if not known:
                    await self._open(loop, opened)
            elif isinstance(hint, Close):
                await self._close(loop, hint.request_id)

    async def _close(self, loop: asyncio.AbstractEventLoop, request_id: str) -> None:
        if self._requests.pop(request_id, None) is not None:
            logger.info("session_ended", request=request_id, drafted=self._drafted.pop(request_id, 0))
        await loop.run_in_executor(self._thread, self._proposer.close, request_id)

    def _readable(self, tokens: Sequence[int]) -> bool:
        """Whether the draft model has all these tokens, because the target's vocabulary may be padded further."""
        return not self._card.n_vocab or max(tokens, default=0) < self._card.n_vocab

    async def _open(self, loop: asyncio.AbstractEventLoop, hint: Open) -> None:
        """Read the job and its log, and open a session; ignores a request that is gone by now."""
        try:
            job = await read_job(self._redis, hint.request_id)
            if job is None:
                return
            committed = [token for _, chunk in await read_log(self._redis, hint.request_id) for token in chunk.tokens]
        except (*DISCONNECTED, codec.CodecError, ResponseError) as error:
            logger.warning("session_not_opened", request=hint.request_id, error=type(error).__name__)
            return
        if len(committed) < len(hint.committed):
            committed = list(hint.committed)
        if not self._readable(job.prompt) or not self._readable(committed):
            return
        self._requests[hint.request_id] = hint
        opening = Opening(
            request_id=hint.request_id,
            prompt=job.prompt,
            committed=tuple(committed),
            sampling=job.sampling,
            eog=frozenset(hint.eog),
            n_vocab=hint.n_vocab,
            lead=hint.lead,
            worth=hint.worth,
            model=job.model,
            caller=job.caller,
            share=job.cache_prompt,
        )
        await loop.run_in_executor(self._thread, self._proposer.open, opening)
