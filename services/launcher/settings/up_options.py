"""The options of `up`, those of `doctor`, and which of them `plan` has too."""

from dataclasses import dataclass, field
from typing import Annotated

from shared.model import chat_templates
from shared.model.offload import AUTO
from shared.settings import options
from shared.settings.options import option
from shared.settings.verifier_options import TargetOptions

EmbeddedRedis = Annotated[str, option("--redis", help="A Redis or Valkey to use; empty: an embedded Valkey.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """What `up` starts; lists of models and devices stand for one verifier or drafter each."""

    target_model: Annotated[
        list[str],
        option(
            "--target-model",
            help="GGUF path, hf:user/repo:QUANT, or 'default'; #sha256=DIGEST pins it. Repeat to serve several models;"
            " the first is the default one.",
        ),
    ] = field(default_factory=lambda: ["default"])
    alias: Annotated[
        list[str],
        option(
            "--alias",
            help="Another name for the model, as clients may write it; for one of several models NAME=MODEL. Repeat for"
            " several names.",
        ),
    ] = field(default_factory=list)
    draft_model: options.DraftModels = field(default_factory=list)
    chat_template: Annotated[
        list[str],
        option(
            "--chat-template",
            help="Chat template per --target-model, in order: own for the model's own, a Jinja file, or"
            f" {chat_templates.NAMES}.",
        ),
    ] = field(default_factory=list)
    target_device: Annotated[
        list[str],
        option(
            "--target-device",
            help="Device per --target-model, in order: auto, cpu, cuda:0, rocm:0, vulkan:0, metal. A list such as"
            " cuda:0,cuda:1 divides the layers.",
        ),
    ] = field(default_factory=list)
    draft_device: options.DraftDevices = field(default_factory=list)
    host: options.Host = options.DEFAULT_HOST
    port: options.Port = options.DEFAULT_PORT
    lan: Annotated[
        bool,
        option(
            "--lan",
            help="Let other machines of the network use the gateway, with a key, and join with `draftmesh join`.",
        ),
    ] = False
    api_keys_file: options.ApiKeysFile = ""
    no_auth: options.NoAuth = False
    drain: options.Drain = options.DEFAULT_DRAIN_S
    redis: EmbeddedRedis = ""
    redis_port: Annotated[int, option("--redis-port", help="Port of the embedded Valkey.", min=0, max=65535)] = 7072
    redis_host: Annotated[
        str,
        option(
            "--redis-host",
            help="Address on which the embedded Valkey listens; beyond the loopback, it wants a password.",
        ),
    ] = options.DEFAULT_HOST
    target: TargetOptions = field(default_factory=TargetOptions)
    log_level: options.LogLevel = options.Level.INFO


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Models and devices to examine: the options of `up` that matter to that, for one target."""

    target_model: options.TargetModel = "default"
    draft_model: options.DraftModels = field(default_factory=list)
    target_device: options.TargetDevice = "auto"
    draft_device: options.DraftDevices = field(default_factory=list)
    threads: options.Threads = 0
    gpu_layers: options.GpuLayers = AUTO
    tensor_split: options.TensorSplit = ""
    offline: options.Offline = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """What to examine."""

    redis: EmbeddedRedis = ""
    models: ModelOptions = field(default_factory=ModelOptions)
