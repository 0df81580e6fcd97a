"""The command-line options that several commands share, each with its environment twin and one help text."""

from enum import StrEnum
from typing import Annotated

import typer

from shared.model import offload
from shared.model.hub import go_offline

DEFAULT_REDIS = "redis://127.0.0.1:7072/0"  # where `draftmesh up` puts its embedded Valkey
DEFAULT_PORT = 7071


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


def _option(*names: str, env: str, help: str, **more: object) -> object:
    return typer.Option(*names, envvar=f"DRAFTMESH_{env}", help=help, show_envvar=True, **more)  # type: ignore[arg-type]


Redis = Annotated[str, _option("--redis", env="REDIS", help="Redis or Valkey that all processes share.")]
Host = Annotated[str, _option("--host", env="HOST", help="Address to listen on.")]
Port = Annotated[int, _option("--port", env="PORT", help="Port to listen on.", min=0, max=65535)]
ApiKeysFile = Annotated[
    str,
    _option("--api-keys-file", env="API_KEYS_FILE", help="Digests of clients' keys; `draftmesh keys new` adds one."),
]
NoAuth = Annotated[
    bool, _option("--no-auth", env="NO_AUTH", help="Serve everyone who can reach the gateway, if it has no keys.")
]


def _offline(wanted: bool) -> bool:
    if wanted:
        go_offline()
    return wanted


# Takes effect while the command line is read, for this process and its children, so nothing needs the value.
Offline = Annotated[
    bool,
    _option(
        "--offline",
        env="OFFLINE",
        help="Use only what is on this machine, never the network.",
        callback=_offline,
        expose_value=False,
    ),
]
TargetModel = Annotated[
    str,
    _option(
        "--target-model",
        env="TARGET_MODEL",
        help="GGUF path, hf:user/repo:QUANT, or 'default'; #sha256=DIGEST pins it.",
    ),
]
TargetModels = Annotated[
    list[str],
    _option(
        "--target-model",
        env="TARGET_MODEL",
        help="GGUF path, hf:user/repo:QUANT, or 'default'; #sha256=DIGEST pins it. Repeat to serve several models; the"
        " first is the default one.",
    ),
]
Aliases = Annotated[
    list[str],
    _option("--alias", env="ALIAS", help="Another name for the model, as clients may write it; repeat for several."),
]
ModelAliases = Annotated[
    list[str],
    _option(
        "--alias",
        env="ALIAS",
        help="Another name for the model, as clients may write it; for one of several models NAME=MODEL. Repeat for"
        " several names.",
    ),
]
TargetDevices = Annotated[
    list[str],
    _option(
        "--target-device",
        env="TARGET_DEVICE",
        help="Device per --target-model, in order: auto, cpu, cuda:0, rocm:0, vulkan:0, metal. A list such as"
        " cuda:0,cuda:1 divides the layers.",
    ),
]
TargetDevice = Annotated[
    str,
    _option(
        "--target-device",
        env="TARGET_DEVICE",
        help="auto, cpu, cuda:0, rocm:0, vulkan:0, metal; a list such as cuda:0,cuda:1 divides the layers.",
    ),
]
DraftModels = Annotated[
    list[str],
    _option("--draft-model", env="DRAFT_MODEL", help="Model that guesses ahead; repeat for several drafters."),
]
DraftModel = Annotated[
    str, _option("--draft-model", env="DRAFT_MODEL", help="Model that guesses ahead; without one: lookup only.")
]
DraftDevices = Annotated[
    list[str],
    _option(
        "--draft-device", env="DRAFT_DEVICE", help="Device per --draft-model, in order; auto: one that no target uses."
    ),
]
DraftDevice = Annotated[
    str, _option("--draft-device", env="DRAFT_DEVICE", help="Device of the draft model; auto: one that no target uses.")
]
ContextSize = Annotated[
    int, _option("--ctx", env="CTX", help="Tokens that one request may use; 0: the model's own, at most 4096.", min=0)
]
Parallel = Annotated[int, _option("--parallel", env="PARALLEL", help="Requests served at once.", min=1, max=64)]
Threads = Annotated[
    int, _option("--threads", env="THREADS", help="CPU threads; 0: a fair share among those on this machine.", min=0)
]
CacheTypeK = Annotated[CacheType, _option("--cache-type-k", env="CACHE_TYPE_K", help="Type of cached keys.")]
CacheTypeV = Annotated[CacheType, _option("--cache-type-v", env="CACHE_TYPE_V", help="Type of cached values.")]
FlashAttention = Annotated[Switch, _option("--flash-attn", env="FLASH_ATTN", help="Flash attention.")]
ExactnessLevel = Annotated[
    Exactness,
    _option("--exactness", env="EXACTNESS", help="Answers bit for bit (strict), in law, or auto: what costs nothing."),
]


def _layers(text: str) -> str:
    if not offload.is_layer_count(text):
        raise typer.BadParameter("must be auto, all, or a number of layers such as 20")
    return text


GpuLayers = Annotated[
    str,
    _option(
        "--gpu-layers",
        env="GPU_LAYERS",
        help="Layers on the GPU, the rest on the CPU: a number, all, or auto for as many as fit.",
        callback=_layers,
    ),
]
TensorSplit = Annotated[
    str,
    _option(
        "--tensor-split",
        env="TENSOR_SPLIT",
        help="Shares of the devices in --target-device, such as 3,1; with auto one for every GPU.",
    ),
]
TraceExport = Annotated[
    Traces,
    _option(
        "--traces", env="TRACES", help="OpenTelemetry traces; a collector is named by OTEL_EXPORTER_OTLP_ENDPOINT."
    ),
]
LogLevel = Annotated[
    Level, _option("--log-level", env="LOG_LEVEL", help="The least important log lines.", case_sensitive=False)
]
