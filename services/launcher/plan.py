"""What `up` will start, decided and checked before anything starts: every bad value is found here, or never.

The commands are the ones a user could type. Redis's address travels in the environment, because a command line, and a
password in it, can be read by every user of the machine.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.launcher import embedded, ports
from services.launcher.child import Program, service_command
from services.launcher.hardware import Hardware
from services.launcher.service_options import Handed
from shared import api_keys, broker, devices
from shared.errors import StartError
from shared.messages import Speculation
from shared.options import CacheType, Exactness, Level, Switch

_FLOAT_TYPES: Final = frozenset({CacheType.AUTO, CacheType.F32, CacheType.F16, CacheType.BF16})

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
    api_keys_file: str
    no_auth: bool
    redis: str
    redis_port: int
    redis_host: str
    ctx: int
    parallel: int
    threads: int
    cache_type_k: CacheType
    cache_type_v: CacheType
    flash_attn: Switch
    exactness: Exactness
    gpu_layers: int
    tensor_split: str
    speculation: Speculation
    log_level: Level


@dataclass(frozen=True, slots=True)
class Plan:
    """Programs in the order in which they start, and where to find them."""

    valkey: Program | None  # None: an outside Redis
    gateway: Program
    verifier: Program
    drafters: tuple[Program, ...]
    redis: str
    shared_redis: str  # for other machines; empty: they cannot reach it, or it is an outside one
    url: str
    notes: tuple[str, ...]


def make(
    wishes: Wishes,
    hardware: Hardware,
    cores: int,
    resolve: Resolve,
    folder: Path,
    environment: Mapping[str, str],
    handed: Handed = Handed(),
) -> Plan:
    """The plan for `wishes`. `resolve(spec, option)` finds models and comes last: it may download.

    `environment` is what children get besides Redis's address, and `handed` what a file says to each. Raises
    `StartError` for the first value that cannot work.
    """
    _check_values(wishes)
    gateway = _gateway_options(wishes, {**handed.twins.get("gateway", {}), **environment})
    target, drafts = place(wishes.target_device, wishes.draft_device, len(wishes.draft_model), hardware.devices)
    port = ports.claim(wishes.host, wishes.port)
    server = None if wishes.redis else embedded.place(wishes.redis_host, wishes.redis_port)
    redis = server.url if server else wishes.redis
    notes = list(handed.notes)
    if server and wishes.redis_port not in (0, server.port):
        notes.append(f"port {wishes.redis_port} is in use, the embedded Valkey takes {server.port}")
    target_path = resolve(wishes.target_model, "--target-model")
    draft_paths = [resolve(model, "--draft-model") for model in wishes.draft_model]

    threads, draft_threads = divide(wishes.threads, cores, wishes.gpu_layers, target, drafts)
    services = _Services({**environment, "DRAFTMESH_REDIS": redis}, handed, wishes.log_level)
    context = ("--ctx", str(wishes.ctx), "--parallel", str(wishes.parallel))
    where = ("--target-device", devices.name_of(target, hardware.devices), "--threads", str(threads))
    drafters = [services.program("lookup drafter", "drafter", (), 2)]
    for index, (path, device) in enumerate(zip(draft_paths, drafts, strict=True)):
        name = devices.name_of(device, hardware.devices)
        options = ("--draft-model", str(path), "--draft-device", name, "--threads", str(draft_threads[index]))
        drafters.append(services.program(f"drafter {index + 1}", "drafter", (*options, *context), 2))
    return Plan(
        valkey=embedded.program(server, folder, environment) if server else None,
        gateway=services.program("gateway", "gateway", ("--host", wishes.host, "--port", str(port), *gateway), 0),
        verifier=services.program(
            "verifier", "verifier", ("--target-model", str(target_path), *where, *context, *_target_options(wishes)), 1
        ),
        drafters=tuple(drafters),
        redis=redis,
        shared_redis=server.shared_url if server else "",
        url=f"http://{_reachable(wishes.host)}:{port}",
        notes=tuple(notes),
    )


@dataclass(frozen=True, slots=True)
class _Services:
    """What the services have in common, and what is handed to each; its own environment wins over that."""

    environment: Mapping[str, str]
    handed: Handed
    log_level: str

    def program(self, name: str, service: str, options: Sequence[str], stage: int) -> Program:
        command = (*service_command(service), *options, "--log-level", self.log_level)
        environment = {**self.handed.twins.get(service, {}), **self.environment}
        return Program(name=name, command=command, stage=stage, environment=environment)


def _reachable(host: str) -> str:
    """`host` as a client on this machine writes it in a URL."""
    if host in ("0.0.0.0", "::", ""):
        return ports.LOOPBACK
    return ports.in_url(host)


def _check_values(wishes: Wishes) -> None:
    if wishes.cache_type_v not in _FLOAT_TYPES and wishes.flash_attn is Switch.OFF:
        raise StartError("--cache-type-v", wishes.cache_type_v, "quantised values need --flash-attn auto or on")
    if wishes.redis:
        broker.check(wishes.redis)
        if wishes.redis_host != ports.LOOPBACK:
            raise StartError("--redis-host", wishes.redis_host, "is the embedded Valkey's, and --redis names another")
    devices.parse_tensor_split(wishes.tensor_split)
    if len(wishes.draft_device) > len(wishes.draft_model):
        surplus = wishes.draft_device[len(wishes.draft_model)]
        raise StartError("--draft-device", surplus, f"one per --draft-model, and there are {len(wishes.draft_model)}")


def _gateway_options(wishes: Wishes, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Who may use the gateway. It reads keys in the environment itself."""
    keys = bool(environment.get("DRAFTMESH_API_KEY"))
    if wishes.api_keys_file:
        keys = bool(api_keys.read(wishes.api_keys_file))
    api_keys.require(wishes.host, keys, wishes.no_auth)
    file = (api_keys.OPTION, wishes.api_keys_file) if wishes.api_keys_file else ()
    return (*file, *(("--no-auth",) if wishes.no_auth else ()))


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
        "--cache-type-k": wishes.cache_type_k.value,
        "--cache-type-v": wishes.cache_type_v.value,
        "--flash-attn": wishes.flash_attn.value,
        "--exactness": wishes.exactness.value,
        "--gpu-layers": str(wishes.gpu_layers),
        "--tensor-split": wishes.tensor_split,
        "--speculation": wishes.speculation.value,
    }
    return tuple(part for option, value in options.items() if value for part in (option, value))
