"""The options of a verifier."""

from dataclasses import dataclass, field
from typing import Annotated, Final

import typer

from shared.model import chat_templates
from shared.model.offload import AUTO
from shared.settings import options
from shared.settings.options import CacheType, Exactness, Switch, option
from shared.wire.messages import Speculation

CACHE_RAM_AUTO: Final = "auto"


def _mebibytes(text: str) -> str:
    if text != CACHE_RAM_AUTO and not (text.isascii() and text.isdigit()):
        raise typer.BadParameter("must be auto, 0 for none, or a number of MiB such as 8192")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """How a target is loaded and used. `up` takes these too, for all of its targets."""

    ctx: options.ContextSize = 0
    parallel: options.Parallel = 8
    threads: options.Threads = 0
    cache_type_k: Annotated[CacheType, option("--cache-type-k", help="Type of cached keys.")] = CacheType.AUTO
    cache_type_v: Annotated[CacheType, option("--cache-type-v", help="Type of cached values.")] = CacheType.AUTO
    cache_ram: Annotated[
        str,
        option(
            "--cache-ram",
            help="Host memory in MiB for conversations that leave the device's cache; auto: a quarter of what is free"
            " once the model is loaded, at most 8192; 0: none, so they stay on the device until their place is needed.",
            callback=_mebibytes,
        ),
    ] = CACHE_RAM_AUTO
    flash_attn: Annotated[Switch, option("--flash-attn", help="Flash attention.")] = Switch.AUTO
    exactness: options.ExactnessLevel = Exactness.AUTO
    gpu_layers: options.GpuLayers = AUTO
    tensor_split: options.TensorSplit = ""
    offline: options.Offline = False
    speculation: Annotated[
        Speculation, option("--speculation", help="Verify drafts where they pay (auto), always, or never (off).")
    ] = Speculation.AUTO


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierOptions:
    """The options of one verifier."""

    redis: options.Redis = options.DEFAULT_REDIS
    target_model: options.TargetModel = "default"
    alias: Annotated[
        list[str], option("--alias", help="Another name for the model, as clients may write it; repeat for several.")
    ] = field(default_factory=list)
    chat_template: Annotated[
        str,
        option(
            "--chat-template",
            help=f"Chat template in place of the model's own: a Jinja file, or {chat_templates.NAMES}.",
        ),
    ] = chat_templates.OWN
    target_device: options.TargetDevice = "auto"
    target: TargetOptions = field(default_factory=TargetOptions)
    lease: Annotated[float, option("--lease", help="Seconds after which a silent verifier is replaced.", min=0.5)] = (
        10.0
    )
    ready_file: options.ReadyFile = ""
    traces: options.TraceExport = options.Traces.OFF
    log_level: options.LogLevel = options.Level.INFO
