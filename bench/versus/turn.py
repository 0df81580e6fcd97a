"""The cell about conversations: how soon the second turn's first token comes when the first turn left its prefix.

The target is the default model itself: a long prompt on the widened one takes minutes, and here overheads show best.
We take what `--exactness auto` gives, which is strict here: its kernels cost more at long contexts than those that the
peer uses, so the law level, which computes as the peer does, is told beside it.
"""

from dataclasses import dataclass, replace
from typing import Final

from bench.tasks import Author, Messages, Task
from bench.versus.completion import chat
from bench.versus.contest import OURS, Contestant
from bench.versus.peers import PeerSetting
from bench.versus.ratios import Key, mean, ratio
from bench.versus.results import CellResult, Finding
from bench.versus.setup import Setup
from services.launcher.clients.streaming import StreamedAnswer, stream
from services.launcher.fleet.stack import Stack

WANTED: Final = 1.1
OURS_LAW: Final = f"{OURS} law"
CTX: Final = 8192
PROMPT_TOKENS: Final = 3000
ANSWER_TOKENS: Final = 48

_FACTS: Final = (
    "Ledger entry {n}: the ship of master number {n} brought {a} sacks of grain, {b} barrels of oil and {c} bolts of"
    " linen, paid {d} silver for its berth and left after {e} days. "
)
_FIRST: Final = "Here is a harbour's ledger. Tell me in a few sentences what kind of trade it shows.\n\n"
_SECOND: Final = "Which of these goods would you expect in a cold country, and why?"


def conversation(author: Author, salt: int) -> str:
    """A user's first message of about `PROMPT_TOKENS` tokens, different for every `salt` from its beginning on."""
    text = f"Harbour {salt}. {_FIRST}"
    n = salt
    while author.length(text) < PROMPT_TOKENS:
        n += 1
        text += _FACTS.format(n=n, a=7 * n % 90, b=5 * n % 40, c=3 * n % 70, d=11 * n % 200, e=n % 9 + 1)
    return text


@dataclass(frozen=True, slots=True)
class _Gateway:
    stack: Stack
    name: str = OURS

    async def ask(self, task: Task) -> StreamedAnswer:
        return await stream(self.stack.http, task.body(False, cache_prompt=True))


async def turn(setup: Setup, cell: str) -> CellResult:
    """Time to the first token of a second turn, ours and the native peer's, or the newest one's, plainly decoded."""
    author = Author(setup.pair.draft_4bit)
    settings = [PeerSetting(engine=engine) for engine in setup.binaries.engines[:1]]
    target = setup.default_model
    first: dict[str, dict[Key, float]] = {}
    cached: dict[str, list[str]] = {}
    async with (
        setup.stack(target, ctx=CTX, exactness="auto", fresh=False) as stack,
        setup.stack(target, ctx=CTX, exactness="law", fresh=False) as lawful,
        setup.opponents(settings, target, ctx=CTX) as servers,
    ):
        peers = (replace(theirs, stream=chat) for theirs in servers)
        speakers: list[Contestant] = [_Gateway(stack), _Gateway(lawful, name=OURS_LAW), *peers]
        for repetition in range(setup.repetitions):
            opening = conversation(author, 1000 * (repetition + 1))
            for speaker in speakers if repetition % 2 == 0 else speakers[::-1]:
                answer = await _second_turn(speaker, author, opening)
                first.setdefault(speaker.name, {})[("turn", repetition)] = answer.first_token_s * 1000
                cached.setdefault(speaker.name, []).append(f"{answer.cached_tokens} of {answer.prompt_tokens}")
                setup.step(speaker.name)
    author.close()
    return CellResult(
        findings=[
            Finding(
                cell=cell,
                what="second turn, first token" if name == OURS else "the same, exactness law",
                ours=mean(first[name]),
                theirs=mean(first[setting.name]),
                opponent=setting.name,
                ratio=ratio(first[name], first[setting.name]),
                wanted=WANTED if name == OURS else None,
                at_most=True,
                unit="ms",
            )
            for setting in settings
            for name in (OURS, OURS_LAW)
        ],
        notes=[f"{name}: cached prompt tokens: {', '.join(sizes)}" for name, sizes in cached.items()],
    )


async def _second_turn(speaker: Contestant, author: Author, opening: str) -> StreamedAnswer:
    messages: Messages = ({"role": "user", "content": opening},)
    asked = author.task("turn", messages, temperature=0.0, seed=1, tokens=ANSWER_TOKENS)
    answer = await speaker.ask(asked)
    messages += ({"role": "assistant", "content": answer.text}, {"role": "user", "content": _SECOND})
    second = author.task("turn", messages, temperature=0.0, seed=1, tokens=ANSWER_TOKENS)
    return await speaker.ask(second)
