"""Promise one on the real model: the answer depends on target, prompt, parameters and seed, and on nothing else."""

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pytest

from services.drafter.lookup_proposer import LookupProposer
from services.drafter.proposer import Draft, Opening
from services.drafter.proposer import Path as DraftPath
from services.verifier.calibrate import measure_exactness
from services.verifier.load import LoadedTarget
from shared.model.llama.vocabulary import Vocabulary
from shared.model.row_costs import PROBE_TEXT
from shared.wire.broker import Broker
from shared.wire.messages import Sampling, Speculation
from tests.e2e.conftest import DraftModel
from tests.e2e.plain import PlainLoop, Reference
from tests.stack import Client, Processes, client, drafter, verifier

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

SHORT, LONG = 8, 32  # tokens; most differences would show early, some only after many rounds
PROMPTS = [
    "Tell me a story about a fox.",
    "Write a Python function that adds two numbers.",
    "Say the word banana ten times. banana banana banana",
    "List three colours and three animals, with emoji 🦊🎨.",
    "请用中文写一句话。",
    "Why is the sky blue? Answer like a pirate, in one long sentence without any full stop.",
]
LAWS = [
    Sampling(seed=1, temperature=0.0),
    Sampling(seed=2, temperature=0.7, top_p=0.95),
    Sampling(seed=3, temperature=1.0),
    Sampling(seed=2**63 + 4, temperature=1.0, repetition_penalty=1.1, presence_penalty=0.5, top_k=50),
]


@dataclass(frozen=True, slots=True)
class Case:
    prompt: tuple[int, ...]
    parameters: Sampling
    tokens: int


class RandomProposer:
    """Guesses with no idea and full confidence."""

    def __init__(self) -> None:
        self._paths: dict[str, DraftPath] = {}
        self._changed: list[str] = []
        self._random = random.Random(5)
        self.step_us = 1000
        self.burst = 1
        self.sessions = 0

    @property
    def busy(self) -> bool:
        return bool(self._changed)

    def open(self, opening: Opening) -> None:
        self._paths[opening.request_id] = DraftPath(opening.prompt, opening.committed)
        self._changed.append(opening.request_id)

    def commit(
        self, request_id: str, base: int, tokens: tuple[int, ...], lead: int, want: int = 0, worth: float = 0.0
    ) -> bool:
        path = self._paths.get(request_id)
        known = path is None or path.commit(base, tokens) is not None
        self._changed.append(request_id)
        return known

    def close(self, request_id: str) -> None:
        self._paths.pop(request_id, None)

    def step(self) -> list[Draft]:
        changed, self._changed = dict.fromkeys(self._changed), []
        drafts = []
        for name in changed:
            path = self._paths.get(name)
            if path is not None:
                path.drop_guesses()
                tokens = tuple(self._random.randrange(49152) for _ in range(5))
                drafts.append(Draft(name, path.committed, path.hash(path.committed), tokens, (1.0,) * 5))
        return drafts


@pytest.fixture(scope="session")
def cases(vocabulary: Vocabulary) -> list[Case]:
    chat = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    return [
        Case(tuple(vocabulary.tokenize(chat.format(text))), parameters, LONG if index == 0 else SHORT)
        for index, text in enumerate(PROMPTS)
        for parameters in LAWS
    ]


@pytest.fixture(scope="session")
def references(shallow_path: Path, cases: list[Case]) -> Iterator[list[Reference]]:
    """What a plain llama-cpp-python loop says."""
    loop = PlainLoop(shallow_path)
    yield [loop.answer(case.prompt, case.parameters, case.tokens) for case in cases]
    loop.close()


@asynccontextmanager
async def stack(
    url: str, target: LoadedTarget, path: Path, *proposers: tuple[str, Callable[[], object]]
) -> AsyncIterator[Client]:
    """A verifier, these drafters and a client, all in this process over the real server."""
    async with AsyncExitStack() as exits:
        for name, make in proposers:
            made = make()
            proposer, context = made if isinstance(made, tuple) else (made, None)
            if context is not None:
                exits.callback(context.close)
            await exits.enter_async_context(drafter(url, proposer, "model" if context else "lookup", name, model=name))
        await exits.enter_async_context(verifier(url, target))
        one = await exits.enter_async_context(client(url, path))
        await one.cards(1 + len(proposers))
        yield one


async def answers(
    one: Client, cases: list[Case], at_once: int, cache_prompt: bool = True
) -> tuple[list[list[int]], set[str], int]:
    """Token ids per case with `at_once` requests in flight, who guessed, and how many guesses were accepted."""
    gate = asyncio.Semaphore(at_once)

    async def ask(case: Case):  # type: ignore[no-untyped-def]
        async with gate:
            return await one.ask(one.job(case.prompt, case.parameters, case.tokens, cache_prompt=cache_prompt))

    found = await asyncio.gather(*(ask(case) for case in cases))
    return (
        [answer.tokens for answer in found],
        set().union(*(answer.sources for answer in found)),
        sum(answer.accepted for answer in found),
    )


DRAFTERS: dict[str, list[str]] = {
    "nobody": [],
    "lookup": ["lookup"],
    "8-bit": ["Q8_0"],
    "4-bit": ["Q4_0"],
    "8-bit, 4-bit and lookup": ["Q8_0", "Q4_0", "lookup"],
    "random": ["random"],
}


@pytest.fixture
def make(draft_models: dict[str, DraftModel]) -> Callable[[str], tuple[str, Callable[[], object]]]:
    def make(kind: str) -> tuple[str, Callable[[], object]]:
        if kind in draft_models:
            return kind, draft_models[kind].proposer
        return kind, {"lookup": LookupProposer, "random": RandomProposer}[kind]

    return make


@pytest.mark.parametrize("drafters", DRAFTERS)
async def test_every_drafter_gives_the_plain_answer(
    drafters: str,
    valkey: Broker,
    valkey_url: str,
    strict_target: LoadedTarget,
    shallow_path: Path,
    cases: list[Case],
    references: list[Reference],
    make: Callable[[str], tuple[str, Callable[[], object]]],
) -> None:
    """Alone and eight at once, with and without prefix reuse. Each set of drafters has a third of the cases alone, and
    half of them together."""
    assert strict_target.level == "strict"
    expected = [reference.tokens for reference in references]
    kinds = DRAFTERS[drafters]
    number = list(DRAFTERS).index(drafters)
    third, half = slice(number % 3, None, 3), slice(number % 2, None, 2)
    async with stack(valkey_url, strict_target, shallow_path, *map(make, kinds)) as one:
        alone, sources, accepted = await answers(one, cases[third], at_once=1)
        together, _, _ = await answers(one, cases[half], at_once=8, cache_prompt=False)
        reused, _, _ = await answers(one, cases[third][::-1], at_once=8, cache_prompt=True)
    assert alone == expected[third]
    assert together == expected[half]
    assert reused == expected[third][::-1]
    if kinds and kinds != ["random"]:
        assert accepted > 0
        assert sources <= set(kinds)


async def test_a_drafter_killed_half_way_changes_nothing(
    valkey: Broker,
    valkey_url: str,
    strict_target: LoadedTarget,
    shallow_path: Path,
    drafts: dict[str, Path],
    cases: list[Case],
    references: list[Reference],
) -> None:
    processes = Processes(valkey_url)
    victim = processes.start("drafter", "--draft-model", str(drafts["Q8_0"]), "--threads", "1", "--name", "victim")
    try:
        async with verifier(valkey_url, strict_target), client(valkey_url, shallow_path) as one:
            await one.cards(2)
            half = len(cases) // 2
            first, sources, accepted = await answers(one, cases[:half], at_once=4)
            assert sources == {"drafter-victim"}
            assert accepted > 0
            running = asyncio.create_task(answers(one, cases[half:], at_once=4))
            await asyncio.sleep(0.03)
            victim.send_signal(signal.SIGKILL)
            second, _, _ = await running
    finally:
        processes.end()
    assert first + second == [reference.tokens for reference in references]


async def test_in_law_answers_differ_only_where_the_draw_was_a_close_call(
    valkey: Broker,
    valkey_url: str,
    law_target: LoadedTarget,
    shallow_path: Path,
    cases: list[Case],
    make: Callable[[str], tuple[str, Callable[[], object]]],
    record_property: Callable[[str, object], None],
) -> None:
    """At the first difference the two best perturbed scores lie within the noise of each other.

    Nothing is cut off here: whether the last token of a top-p or top-k is in is a close call of its own, which may
    change the winner by any distance.
    """
    assert law_target.level == "law"
    noise = measure_exactness(law_target.context, law_target.model.vocabulary.tokenize(PROBE_TEXT)).noise
    whole = [replace(case, parameters=msgspec.structs.replace(case.parameters, top_p=1.0, top_k=0)) for case in cases]
    loop = PlainLoop(shallow_path, exact=False)
    expected = [loop.answer(case.prompt, case.parameters, case.tokens) for case in whole]
    loop.close()
    async with stack(valkey_url, law_target, shallow_path, make("Q8_0"), make("lookup")) as one:
        found, _, accepted = await answers(one, whole, at_once=4)
    assert accepted > 0
    different = 0
    for tokens, reference in zip(found, expected, strict=True):
        if tokens == reference.tokens:
            continue
        different += 1
        at = next(
            (index for index, pair in enumerate(zip(tokens, reference.tokens, strict=False)) if pair[0] != pair[1]),
            min(len(tokens), len(reference.tokens)),
        )
        # Both scores move, each by up to the noise.
        assert reference.gaps[at] <= 2 * noise
    record_property("sequences", len(whole))
    record_property("different", different)
    print(f"law: {different} of {len(whole)} sequences differ; noise {noise:.3f}")


async def test_requests_that_are_not_to_speculate_do_not(
    valkey: Broker,
    valkey_url: str,
    strict_target: LoadedTarget,
    shallow_path: Path,
    cases: list[Case],
    references: list[Reference],
    make: Callable[[str], tuple[str, Callable[[], object]]],
) -> None:
    async with stack(valkey_url, strict_target, shallow_path, make("lookup")) as one:
        for case, reference in list(zip(cases, references, strict=True))[:6]:
            answer = await one.ask(one.job(case.prompt, case.parameters, case.tokens, speculation=Speculation.OFF))
            assert answer.tokens == reference.tokens
            assert sum(chunk.drafted for chunk in answer.chunks) == 0
