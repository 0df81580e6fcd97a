"""The options of `doctor`, and which of them `plan` has too."""

from dataclasses import dataclass, field

from services.launcher.settings.up_options import EmbeddedRedis
from shared.model.offload import AUTO
from shared.settings import options


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
