"""The `draftmesh` command: a wrong command line is one line and exit status 2, never a traceback."""

import os
import secrets
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from services.launcher.bench.workloads import Workload
from services.launcher.child import service_command
from services.launcher.plan import Wishes
from services.launcher.ports import LOOPBACK
from shared import options, usage
from shared.messages import Speculation

app = typer.Typer(
    name="draftmesh",
    help="Makes a big model answer faster by letting every spare device guess ahead for it, exactly.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}

EmbeddedRedis = Annotated[
    str,
    typer.Option("--redis", envvar="DRAFTMESH_REDIS", help="A Redis or Valkey to use; empty: an embedded Valkey."),
]
RedisPort = Annotated[
    int,
    typer.Option("--redis-port", envvar="DRAFTMESH_REDIS_PORT", help="The embedded Valkey's.", min=0, max=65535),
]
RedisHost = Annotated[
    str,
    typer.Option(
        "--redis-host",
        envvar="DRAFTMESH_REDIS_HOST",
        help="Address on which the embedded Valkey listens; other than this machine's own: with a password.",
    ),
]
SpeculationMode = Annotated[
    Speculation,
    typer.Option("--speculation", envvar="DRAFTMESH_SPECULATION", help="Verify drafts where they pay, always, never."),
]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"draftmesh {metadata.version('draftmesh')}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def up(
    context: typer.Context,
    target_model: options.TargetModel = "default",
    draft_model: options.DraftModels = [],  # noqa: B006 - typer copies it
    target_device: options.TargetDevice = "auto",
    draft_device: options.DraftDevices = [],  # noqa: B006
    host: options.Host = "127.0.0.1",
    port: options.Port = options.DEFAULT_PORT,
    api_keys_file: options.ApiKeysFile = "",
    no_auth: options.NoAuth = False,
    redis: EmbeddedRedis = "",
    redis_port: RedisPort = 7072,
    redis_host: RedisHost = LOOPBACK,
    ctx: options.ContextSize = 0,
    parallel: options.Parallel = 8,
    threads: options.Threads = 0,
    cache_type_k: options.CacheTypeK = options.CacheType.AUTO,
    cache_type_v: options.CacheTypeV = options.CacheType.AUTO,
    flash_attn: options.FlashAttention = options.Switch.AUTO,
    exactness: options.ExactnessLevel = options.Exactness.AUTO,
    gpu_layers: options.GpuLayers = -1,
    tensor_split: options.TensorSplit = "",
    speculation: SpeculationMode = Speculation.AUTO,
    log_level: options.LogLevel = options.Level.INFO,
) -> int:
    """Start everything on this machine: Valkey, gateway, verifier, drafters."""
    from services.launcher.up import run, variables

    # The callback's parameters and the command's are apart, so these are exactly the fields of `Wishes`.
    return run(Wishes(**context.params), variables(context.command.params))


@app.command(context_settings=_PASS_ON, add_help_option=False)
def gateway(context: typer.Context) -> None:
    """The HTTP front (its own options: draftmesh gateway --help)."""
    _become("gateway", context.args)


@app.command(context_settings=_PASS_ON, add_help_option=False)
def verifier(context: typer.Context) -> None:
    """The process that owns the target model (draftmesh verifier --help)."""
    _become("verifier", context.args)


@app.command(context_settings=_PASS_ON, add_help_option=False)
def drafter(context: typer.Context) -> None:
    """A process that guesses ahead (draftmesh drafter --help)."""
    _become("drafter", context.args)


@app.command()
def join(
    context: typer.Context,
    redis_url: Annotated[str, typer.Argument(help="The fleet's Redis, such as redis://host:6379/0.")],
    draft_model: options.DraftModel = "",
    draft_device: options.DraftDevice = "auto",
    threads: options.Threads = 0,
    ctx: options.ContextSize = 0,
    parallel: options.Parallel = 8,
    gpu_layers: options.GpuLayers = -1,
    log_level: options.LogLevel = options.Level.INFO,
) -> None:
    """Let this machine guess ahead for a fleet: a drafter on the fleet's Redis."""
    arguments = []
    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        # What the user did not write is the drafter's to decide; environment twins it reads itself.
        if parameter.name != "redis_url" and source is not None and source.name == "COMMANDLINE":
            arguments += [parameter.opts[0], str(context.params[str(parameter.name)])]
    _become("drafter", arguments, {"DRAFTMESH_REDIS": redis_url})


@app.command()
def status(
    redis: options.Redis = options.DEFAULT_REDIS,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> int:
    """Show the fleet: processes, acceptance, speed, and why a request is not speculating."""
    from services.launcher import status as shown

    return shown.run(redis, as_json)


@app.command()
def doctor(
    redis: EmbeddedRedis = "",
    target_model: options.TargetModel = "default",
    draft_model: options.DraftModels = [],  # noqa: B006
    target_device: options.TargetDevice = "auto",
    draft_device: options.DraftDevices = [],  # noqa: B006
    threads: options.Threads = 0,
    gpu_layers: options.GpuLayers = -1,
    tensor_split: options.TensorSplit = "",
) -> int:
    """Check Redis, devices, models and vocabularies, and measure whether speculation pays here."""
    from services.launcher import doctor as checks

    return checks.run(
        checks.Subject(
            redis=redis,
            target_model=target_model,
            draft_models=tuple(draft_model),
            target_device=target_device,
            draft_devices=tuple(draft_device),
            threads=threads,
            gpu_layers=gpu_layers,
            tensor_split=tensor_split,
        )
    )


@app.command("plan")
def plan_ahead(
    target_model: options.TargetModel = "default",
    draft_model: options.DraftModels = [],  # noqa: B006
    target_device: options.TargetDevice = "auto",
    draft_device: options.DraftDevices = [],  # noqa: B006
    threads: options.Threads = 0,
    gpu_layers: options.GpuLayers = -1,
    tensor_split: options.TensorSplit = "",
    temperature: Annotated[
        list[float], typer.Option("--temperature", help="Of the probe; repeat for several.", min=0.0, max=2.0)
    ] = [0.0, 1.0],  # noqa: B006
    prompt: Annotated[
        list[str], typer.Option("--prompt", help="A text for the probe to go on with; repeat for several.")
    ] = [],  # noqa: B006
    tokens: Annotated[
        int, typer.Option("--tokens", help="Length of the probe, per text and temperature.", min=4, max=2048)
    ] = 48,
    rtt: Annotated[float, typer.Option("--rtt", help="Round trip to the drafter in ms.", min=0.0)] = 0.5,
    demo_pair: Annotated[bool, typer.Option("--demo-pair", help="Measure the demo's models.")] = False,
    redis: Annotated[str, typer.Option("--redis", help="Use what this running fleet has measured instead.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> int:
    """Forecast the speed-up for models and devices, and say what would help most."""
    from services.launcher import planner

    subject = planner.Subject(
        target_model=target_model,
        draft_models=tuple(draft_model),
        target_device=target_device,
        draft_devices=tuple(draft_device),
        threads=threads,
        gpu_layers=gpu_layers,
        tensor_split=tensor_split,
        temperatures=tuple(dict.fromkeys(temperature)),
        texts=tuple(prompt) or planner.TEXTS,
        tokens=tokens,
        round_trip_ms=rtt,
        redis=redis,
        demo_pair=demo_pair,
    )
    return planner.run(subject, as_json)


@app.command()
def demo(
    prompt: Annotated[str, typer.Option("--prompt", help="What to answer.")] = "Explain why the sky is blue.",
    tokens: Annotated[int, typer.Option("--tokens", help="Tokens per answer.", min=1, max=4096)] = 96,
    temperature: Annotated[float, typer.Option("--temperature", help="0 is greedy.", min=0.0, max=2.0)] = 0.7,
) -> int:
    """Answer one prompt plainly and one with drafts, live, on a model where speculation pays."""
    from services.launcher import demo as shown

    return shown.run(prompt, tokens, temperature)


@app.command()
def bench(
    context: typer.Context,
    url: Annotated[
        str, typer.Argument(help="The server, as http://host:port or NAME=http://host:port.")
    ] = f"http://{LOOPBACK}:{options.DEFAULT_PORT}",
    compare: Annotated[
        list[str], typer.Option("--compare", help="A server to compare with, given as URL is; may be repeated.")
    ] = [],  # noqa: B006
    workload: Annotated[
        list[Workload], typer.Option("--workload", help="Kind of work; may be repeated. All of them by default.")
    ] = list(Workload),  # noqa: B006
    concurrency: Annotated[
        list[int], typer.Option("--concurrency", help="Requests at once; may be repeated.", min=1, max=16)
    ] = [1],  # noqa: B006
    temperature: Annotated[
        list[float], typer.Option("--temperature", help="0 is greedy; may be repeated.", min=0.0, max=2.0)
    ] = [0.0, 1.0],  # noqa: B006
    tokens: Annotated[int, typer.Option("--tokens", help="Most tokens per answer.", min=2, max=4096)] = 128,
    repeat: Annotated[
        int, typer.Option("--repeat", help="Repetitions, with other prompts and seeds each; 3 show the spread.", min=1)
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
            help="Key, one per server in order and sent to no other; the environment's is URL's.",
        ),
    ] = [],  # noqa: B006
    seed: Annotated[
        int | None,
        typer.Option("--seed", help="Repeats an earlier run's requests; a server's cache may then know them.", min=0),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write every figure and sample there.")] = None,
    plot_file: Annotated[Path | None, typer.Option("--plot", help="Draw the figures there, as PNG.")] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds until an answer counts as failed.", min=1)] = 300,
) -> int:
    """Measure a server that speaks OpenAI's chat dialect, alone or in turn with others.

    Reports tokens per second, time to the first token, inter-token latency, and drafts accepted by offset.

    With --compare, servers answer the same requests in turn, so that a drift of the machine favours nobody.

    Example: draftmesh bench --compare llama=http://127.0.0.1:8080 --workload chat --workload edit --plot bench.png
    """
    from services.launcher.bench import command
    from services.launcher.bench.plan import Settings
    from services.launcher.bench.servers import addresses

    source = context.get_parameter_source("api_key")
    # The variable may hold all keys of a gateway; a peer must not be sent the second one.
    keys = api_key[:1] if source is not None and source.name == "ENVIRONMENT" else api_key
    return command.run(
        command.Options(
            addresses=tuple(addresses(url, compare, keys, model)),
            settings=Settings(
                workloads=tuple(dict.fromkeys(workload)),
                concurrencies=tuple(dict.fromkeys(concurrency)),
                temperatures=tuple(dict.fromkeys(temperature)),
                tokens=tokens,
                repeat=repeat,
                seed=secrets.randbits(31) if seed is None else seed,
            ),
            timeout_s=timeout,
            json_file=json_file,
            plot_file=plot_file,
        )
    )


@app.command()
def launch(
    client: Annotated[str, typer.Argument(help="claude, codex, opencode, continue, aider or open-webui.")],
    arguments: Annotated[
        list[str], typer.Argument(metavar="-- ARGUMENTS", help="What follows -- is the client's own.")
    ] = [],  # noqa: B006
    url: Annotated[
        str, typer.Option("--url", envvar="DRAFTMESH_URL", help="The gateway.", show_envvar=True)
    ] = f"http://{LOOPBACK}:{options.DEFAULT_PORT}",
    model: Annotated[str, typer.Option("--model", help="One that is served there; by default the first.")] = "",
    api_key: Annotated[
        list[str], typer.Option("--api-key", envvar="DRAFTMESH_API_KEY", help="The gateway's.", show_envvar=True)
    ] = [],  # noqa: B006
    show: Annotated[bool, typer.Option("--print", help="Show the shell commands that would do it.")] = False,
) -> int:
    """Start a client so that it uses the gateway; the user's own settings files stay as they are.

    Example: draftmesh launch claude -- -p "What does this program do?"
    """
    from services.launcher import launch as launcher

    return launcher.run(
        launcher.Wishes(
            client=client,
            arguments=tuple(arguments),
            url=url,
            model=model,
            key=next(iter(api_key), ""),  # the variable may hold all keys of a gateway
            show=show,
        )
    )


keys = typer.Typer(help="Make API keys for clients of a gateway.", add_completion=False)
app.add_typer(keys, name="keys")


@keys.command("new")
def new_key(
    api_keys_file: options.ApiKeysFile = "",
    name: Annotated[str, typer.Option("--name", help="Whose it is; told apart by it in the file.")] = "",
) -> None:
    """Print a new API key, once, and add its digest to the file."""
    from shared import api_keys

    typer.echo(api_keys.add(api_keys_file, name))


@app.command("acl")
def make_users(
    address: Annotated[str, typer.Argument(help="The Redis as services reach it, such as redis://host:6379/0.")],
    folder: Annotated[Path, typer.Argument(help="Where the files go: users.acl, and SERVICE.env per service.")],
) -> None:
    """Make a Redis user for each service, with its least rights and a password of its own.

    Give users.acl to the server (aclfile), and each service the variable in its file.
    """
    from services.launcher import acl

    for file in acl.write(folder, address):
        typer.echo(file)


def _become(service: str, arguments: Sequence[str], environment: dict[str, str] | None = None) -> NoReturn:
    """Turn this process into a service: signals and exit status are then the service's own."""
    command = (*service_command(service), *arguments)
    sys.stdout.flush()
    os.execve(command[0], command, {**os.environ, **(environment or {})})


def main() -> None:
    """The console script: runs the command and exits with its status."""
    usage.run(app, "draftmesh")
