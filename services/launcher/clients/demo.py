"""`draftmesh demo`: answers one prompt plainly and once more with drafts, live, to show a newcomer what drafts do.

It starts a fleet of its own on free ports, and stops it at the end. Both answers have the same seed: drafts change only
the speed.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from services.launcher.clients.streaming import AnswerError, AttributedToken, StreamedAnswer, stream
from services.launcher.fleet.cores import halves
from services.launcher.fleet.stack import Stack, StackError, run_to_end
from services.launcher.models.pair import Pair, build_pair, default_model, pair_paths
from services.launcher.models.progress import building
from shared.errors import StartError
from shared.folders import cache_folder
from shared.settings.command_line import INTERRUPTED

SEED: Final = 7
ABOUT_THE_PAIR: Final = (
    "This pair was made for the demo. Its target is the default model widened: the same function at the cost of 0.7 B"
    " parameters. Its draft is a copy of the default model in 8 bits, so nearly every guess is right. `draftmesh plan`"
    " tells what to expect of your own models."
)
TARGET, DRAFTER, LOOKUP = "default", "green", "cyan"  # white would vanish on a white terminal


def run(prompt: str, tokens: int, temperature: float) -> int:
    """Build the pair if needed, answer `prompt` twice, say how much the drafts helped. Returns the exit status."""
    console = Console(highlight=False, soft_wrap=True)
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        pair = _build(console)
        status = run_to_end(_Demo(console, pair).show(prompt, tokens, temperature))
        if status == INTERRUPTED:
            console.print("\nstopped", style="dim")
        return status
    except (StartError, StackError, AnswerError) as error:
        errors.print(f"error: {error}", markup=False)
        return 2 if isinstance(error, StartError) else 1
    except KeyboardInterrupt:  # while the pair is built; later Ctrl-C is handled by run_to_end
        return INTERRUPTED


def _build(console: Console) -> Pair:
    source = default_model()
    folder = cache_folder()
    home = pair_paths(folder, source)
    if home.missing():
        console.print(
            "Building the demo's models once, from the default model: about 10 seconds, and 0.8 GB in"
            f" {home.target.parent} (DRAFTMESH_CACHE names another folder).",
            markup=False,
        )
    with building(console) as progress:
        return build_pair(folder, progress, source)


class _Demo:
    def __init__(self, console: Console, pair: Pair) -> None:
        self._console = console
        self._pair = pair
        self._colours: dict[str, str] = {}

    async def show(self, prompt: str, tokens: int, temperature: float) -> int:
        engine, side = halves()
        self._console.print(
            f"Starting: target on {_cores(engine)}, drafter on {_cores(side)}. Half a minute the first time, to measure"
            " what decodes cost here; a few seconds later on.",
            style="dim",
        )
        if set(engine) == set(side):
            self._console.print("Only one core: both sides share it, so expect no speed-up.", style="yellow")
        body = {"messages": [{"role": "user", "content": prompt}], "temperature": temperature, "seed": SEED}
        # The prefix cache would save the second answer its prefill, which this does not compare.
        body |= {"max_tokens": tokens, "cache_prompt": False, "speculative_trace": True}
        async with AsyncExitStack() as closing:
            with self._console.status("starting", spinner="line") as waiting:
                fleet = Stack(self._pair.target, engine_cores=engine, side_cores=side, say=waiting.update)
                stack = await closing.enter_async_context(fleet)
                await self._start_drafters(stack, self._pair.draft_8bit)
                await self._warm_up(stack, body)
            self._console.print(f"\n> {prompt}\n", style="bold", markup=False)
            plain = await self._answer(stack, "plainly", {**body, "speculative": False})
            drafted = await self._answer(stack, "with drafts", {**body, "speculative": "auto"})
        self._summary(plain, drafted)
        return 0

    async def _start_drafters(self, stack: Stack, model: Path) -> None:
        drafter = await stack.start_drafter(model)
        lookup = await stack.start_drafter(None)
        self._colours = {
            "": TARGET,
            await stack.drafter_id(drafter): DRAFTER,
            await stack.drafter_id(lookup): LOOKUP,
        }

    async def _warm_up(self, stack: Stack, body: dict[str, Any]) -> None:
        """Load both models and connect the drafter before the first answer, so that this time does not count."""
        await stream(stack.http, {**body, "max_tokens": 8, "speculative": "auto"})

    async def _answer(self, stack: Stack, title: str, body: dict[str, Any]) -> StreamedAnswer:
        self._console.rule(title, style="dim", align="left")
        if body["speculative"]:
            self._console.print(_legend())
        answer = await stream(stack.http, body, self._print)
        self._console.print("\n")
        return answer

    def _print(self, guesses: list[AttributedToken]) -> None:
        for guess in guesses:
            self._console.print(Text(guess.text, style=self._colours.get(guess.source, DRAFTER)), end="")

    def _summary(self, plain: StreamedAnswer, drafted: StreamedAnswer) -> None:
        statistics = drafted.statistics
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_row("plainly", f"{plain.tokens_per_second:.1f} tokens/s")
        table.add_row("with drafts", f"{drafted.tokens_per_second:.1f} tokens/s")
        table.add_row(
            "drafts accepted",
            f"{statistics.get('accepted', 0)} of {statistics.get('drafted', 0)}"
            f" ({statistics.get('acceptance_rate') or 0:.0%})",
        )
        table.add_row("tokens per round", f"{statistics.get('tokens_per_round') or 1:.2f}")
        if reason := statistics.get("reason"):
            table.add_row("not speculating", str(reason))
        table.add_row("same text", _equality(plain.tokens, drafted.tokens))
        self._console.rule(style="dim")
        self._console.print(table)
        self._console.print(f"\n{ABOUT_THE_PAIR}", markup=False)
        self._console.print(f"\n{_ratio(plain, drafted)}", style="bold")


def _ratio(plain: StreamedAnswer, drafted: StreamedAnswer) -> str:
    if not plain.tokens_per_second:
        return "Too few tokens to tell how fast it was; --tokens 96 takes a few seconds."
    speeds = f"{drafted.tokens_per_second:.1f} instead of {plain.tokens_per_second:.1f} tokens/s"
    return f"With drafts {drafted.tokens_per_second / plain.tokens_per_second:.1f} times as fast: {speeds}."


def _legend() -> Text:
    return Text.assemble(
        ("each token's colour says who guessed it: ", "dim"),
        ("the target itself", TARGET),
        ", ",
        ("the 8-bit drafter", DRAFTER),
        ", ",
        ("the lookup drafter", LOOKUP),
        "\n",
    )


def _equality(one: Sequence[int], other: Sequence[int]) -> str:
    """Whether two answers are equal, or where and why they differ."""
    if list(one) == list(other):
        return f"yes, all {len(one)} tokens"
    same = next(
        (i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other))
    )
    return (
        f"up to token {same}; there two tokens were almost equally likely, and a decode of several rows adds up in"
        " another order than a decode of one, which rounds differently (--exactness strict prevents that)"
    )


def _cores(cores: Sequence[int]) -> str:
    return f"core {cores[0]}" if len(cores) == 1 else f"{len(cores)} cores"
