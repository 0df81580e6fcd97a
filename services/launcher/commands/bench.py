"""`draftmesh bench`."""

import secrets
from pathlib import Path
from typing import Annotated

import typer

from services.launcher.bench.workloads import Workload
from services.launcher.commands.fleet_options import Up, gateway_of
from services.launcher.fleet.ports import LOOPBACK
from shared.settings import options


def bench(
    context: typer.Context,
    url: Annotated[
        str,
        typer.Argument(
            help="The server, as http://host:port or NAME=http://host:port; by default the running `up`'s gateway."
        ),
    ] = f"http://{LOOPBACK}:{options.DEFAULT_PORT}",
    compare: Annotated[
        list[str], typer.Option("--compare", help="A server to compare with, in the same form as URL; may be repeated.")
    ] = [],  # noqa: B006
    workload: Annotated[
        list[Workload], typer.Option("--workload", help="Kind of work; may be repeated. All of them by default.")
    ] = list(Workload),  # noqa: B006
    concurrency: Annotated[
        list[int], typer.Option("--concurrency", help="Requests at once; may be repeated.", min=1, max=16)
    ] = [1],  # noqa: B006
    temperature: Annotated[
        list[float],
        typer.Option("--temperature", help="Temperature of sampling, 0 is greedy; may be repeated.", min=0.0, max=2.0),
    ] = [0.0, 1.0],  # noqa: B006
    tokens: Annotated[int, typer.Option("--tokens", help="Most tokens per answer.", min=2, max=4096)] = 128,
    repeat: Annotated[
        int, typer.Option("--repeat", help="Repetitions, each with other prompts and seeds; 3 show the spread.", min=1)
    ] = 3,
    model: Annotated[
        list[str],
        typer.Option("--model", help="Model, one per server in order; by default the first that each one lists."),
    ] = [],  # noqa: B006
    api_key: Annotated[
        list[str],
        typer.Option(
            "--api-key",
            envvar="DRAFTMESH_API_KEY",
            help="API key, one per server in order; one from the environment or the file is for URL.",
        ),
    ] = [],  # noqa: B006
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", help="Seed that repeats an earlier run's requests; a server may have cached them.", min=0
        ),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="File for every figure and sample, as JSON.")] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", help="File for an HTML page to share, without host names; its card goes beside it, as JSON."
        ),
    ] = None,
    plain: Annotated[
        bool | None,
        typer.Option(
            "--plain/--no-plain",
            help="Measure URL once more without drafts (draftmesh only); with --report that is the default.",
        ),
    ] = None,
    up: Up = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds until an answer counts as failed.", min=1)] = 300,
) -> int:
    """Measure a server that speaks OpenAI's chat dialect, alone or in turn with others.

    Reports tokens per second, time to the first token, inter-token latency, and drafts accepted by offset.

    With --report it writes a page and a card to share; `draftmesh bench compare` reads two cards.

    With --compare, servers answer the same requests in turn, so that a drift of the machine favours none of them.

    Example: draftmesh bench --compare llama=http://127.0.0.1:8080 --workload chat --workload edit --report bench.html
    """
    from services.launcher.bench import command
    from services.launcher.bench.plan import BenchSettings
    from services.launcher.bench.servers import addresses

    source = context.get_parameter_source("api_key")
    # The variable and the file may hold all keys of a gateway, and a peer must not get the second one.
    keys = api_key if source is not None and source.name == "COMMANDLINE" else api_key[:1]
    return command.run(
        command.BenchOptions(
            addresses=tuple(addresses(gateway_of(context, "url", url, up), compare, keys, model)),
            settings=BenchSettings(
                workloads=tuple(dict.fromkeys(workload)),
                concurrencies=tuple(dict.fromkeys(concurrency)),
                temperatures=tuple(dict.fromkeys(temperature)),
                tokens=tokens,
                repeat=repeat,
                seed=secrets.randbits(31) if seed is None else seed,
            ),
            timeout_s=timeout,
            json_file=json_file,
            report_file=report,
            plain=plain,
        )
    )


def compare(
    one: Annotated[Path, typer.Argument(metavar="A", help="A card: the .json beside a page of bench --report.")],
    other: Annotated[Path, typer.Argument(metavar="B", help="Another one.")],
) -> int:
    """Compare two measurements by their cards: first their differences, then B over A.

    Ratios are of means, because the two did not run in turn; a difference of a few percent means nothing.
    """
    from services.launcher.bench import compare as comparing

    return comparing.run(one, other)
