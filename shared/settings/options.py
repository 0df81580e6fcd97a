"""How an option is declared, and those that several commands share: each has an environment twin and a help text."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from shared.model import offload
from shared.model.hub import go_offline

DEFAULT_REDIS = "redis://127.0.0.1:7072/0"  # where `draftmesh up` puts its embedded Valkey
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 7071
DEFAULT_DRAIN_S = 20.0  # less than the 30 s after which most platforms kill


class Exactness(StrEnum):
    """How exact answers must be: bit for bit, in law, or bit for bit if that costs nothing."""

    AUTO = "auto"
    STRICT = "strict"
    LAW = "law"


class Switch(StrEnum):
    """An option that draftmesh can also decide by itself."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class CacheType(StrEnum):
    """How cached keys or values are stored; the exactness decides where it is `auto`. Names as in llama.cpp."""

    AUTO = "auto"
    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    Q8_0 = "q8_0"
    Q5_1 = "q5_1"
    Q5_0 = "q5_0"
    Q4_1 = "q4_1"
    Q4_0 = "q4_0"


class Traces(StrEnum):
    """Where traces go: nowhere, to an OpenTelemetry collector, or to standard error."""

    OFF = "off"
    OTLP = "otlp"
    CONSOLE = "console"


class Level(StrEnum):
    """The lowest level of log lines that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def variable(key: str) -> str:
    """The environment twin of the option with this key: DRAFTMESH_CTX for `ctx`."""
    return f"DRAFTMESH_{key.upper()}"


def option(name: str, help: str, **more: Any) -> Any:
    """The declaration of the option `name`, such as "--ctx", with its environment twin."""
    return typer.Option(name, envvar=variable(name.removeprefix("--").replace("-", "_")), help=help, **more)


Redis = Annotated[str, option("--redis", help="Redis or Valkey that all processes share.")]
Host = Annotated[str, option("--host", help="Address to listen on.")]
Port = Annotated[int, option("--port", help="Port to listen on.", min=0, max=65535)]
ApiKeysFile = Annotated[str, option("--api-keys-file", help="Digests of clients' keys; `draftmesh keys new` adds one.")]
NoAuth = Annotated[bool, option("--no-auth", help="Serve everyone who can reach the gateway, if it has no keys.")]


def _offline(wanted: bool) -> bool:
    if wanted:
        go_offline()
    return wanted


# Takes effect while the command line is read, for this process and its children.
Offline = Annotated[
    bool, option("--offline", help="Use only what is on this machine, never the network.", callback=_offline)
]
TargetModel = Annotated[
    str, option("--target-model", help="GGUF path, hf:user/repo:QUANT, or 'default'; #sha256=DIGEST pins it.")
]
TargetDevice = Annotated[
    str,
    option(
        "--target-device",
        help="auto, cpu, cuda:0, rocm:0, vulkan:0, metal; a list such as cuda:0,cuda:1 divides the layers.",
    ),
]
DraftModels = Annotated[
    list[str], option("--draft-model", help="Model that guesses ahead; repeat for several drafters.")
]
DraftModel = Annotated[str, option("--draft-model", help="Model that guesses ahead; without one: lookup only.")]
DraftDevices = Annotated[
    list[str], option("--draft-device", help="Device per --draft-model, in order; auto: one that no target uses.")
]
DraftDevice = Annotated[str, option("--draft-device", help="Device of the draft model; auto: one that no target uses.")]
ContextSize = Annotated[
    int, option("--ctx", help="Tokens that one request may use; 0: the model's own, at most 4096.", min=0)
]
Parallel = Annotated[int, option("--parallel", help="Requests served at once.", min=1, max=64)]
Threads = Annotated[int, option("--threads", help="CPU threads; 0: a fair share among those on this machine.", min=0)]
ExactnessLevel = Annotated[
    Exactness, option("--exactness", help="Answers bit for bit (strict), in law, or auto: what costs nothing.")
]


def _layers(text: str) -> str:
    if not offload.is_layer_count(text):
        raise typer.BadParameter("must be auto, all, or a number of layers such as 20")
    return text


GpuLayers = Annotated[
    str,
    option(
        "--gpu-layers",
        help="Layers on the GPU, the rest on the CPU: a number, all, or auto for as many as fit.",
        callback=_layers,
    ),
]
TensorSplit = Annotated[
    str,
    option(
        "--tensor-split", help="Shares of the devices in --target-device, such as 3,1; with auto one for every GPU."
    ),
]
TraceExport = Annotated[
    Traces, option("--traces", help="OpenTelemetry traces; a collector is named by OTEL_EXPORTER_OTLP_ENDPOINT.")
]
Drain = Annotated[
    float,
    option(
        "--drain",
        help="Seconds for which running requests may finish after SIGTERM; the gateway ends what is left then. Whatever"
        " stops it should wait 5 s longer before it kills.",
        min=0,
    ),
]
ReadyFile = Annotated[
    str,
    option(
        "--ready-file",
        help="File that is there while this process serves, and touched every 5 s: what a probe of Kubernetes or Docker"
        " can ask. Empty: none.",
    ),
]
LogLevel = Annotated[Level, option("--log-level", help="The least important log lines.", case_sensitive=False)]
