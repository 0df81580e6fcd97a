"""`draftmesh doctor`."""

from services.launcher.settings.up_options import EmbeddedRedis
from shared.model.offload import AUTO
from shared.settings import options


def doctor(
    redis: EmbeddedRedis = "",
    target_model: options.TargetModel = "default",
    draft_model: options.DraftModels = [],  # noqa: B006
    target_device: options.TargetDevice = "auto",
    draft_device: options.DraftDevices = [],  # noqa: B006
    threads: options.Threads = 0,
    gpu_layers: options.GpuLayers = AUTO,
    tensor_split: options.TensorSplit = "",
    offline: options.Offline = False,
) -> int:
    """Check Redis, devices, models and vocabularies, and measure whether speculation pays here."""
    from services.launcher.forecast import doctor as checks

    return checks.run(
        checks.DoctorOptions(
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
