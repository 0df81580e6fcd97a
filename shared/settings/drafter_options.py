"""The options of a drafter."""

from dataclasses import dataclass, field
from typing import Annotated

from shared.model.offload import AUTO
from shared.settings import options
from shared.settings.options import option


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftOptions:
    """Which draft model is loaded, and how. `join` takes these too."""

    draft_model: options.DraftModel = ""
    draft_device: options.DraftDevice = "auto"
    ctx: options.ContextSize = 0
    parallel: options.Parallel = 8
    threads: options.Threads = 0
    gpu_layers: options.GpuLayers = AUTO
    offline: options.Offline = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterOptions:
    """The options of one drafter."""

    redis: options.Redis = options.DEFAULT_REDIS
    draft: DraftOptions = field(default_factory=DraftOptions)
    ready_file: options.ReadyFile = ""
    log_level: options.LogLevel = options.Level.INFO
    name: Annotated[str, option("--name", help="Name shown by status; default: made up.")] = ""
