"""What `up` will start, decided and checked before anything starts: every bad value is found here, or never.

The commands are the ones a user could type. Redis's address travels in the environment, because a command line, and a
password in it, can be read by every user of the machine.
"""

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from services.launcher.facts.placing import divide, offload_target, place_drafts, place_targets
from services.launcher.fleet import embedded, lan, ports
from services.launcher.fleet.aliases import name_targets
from services.launcher.fleet.child import Program, service_command
from services.launcher.fleet.fleet_notice import Fleet
from services.launcher.fleet.token import join_token
from services.launcher.settings.service_options import Handed
from shared.errors import StartError
from shared.folders import state_folder
from shared.machine import devices
from shared.machine.devices import Device
from shared.model import model_source
from shared.process import api_keys
from shared.settings.options import CacheType, Exactness, Level, Switch
from shared.wire import broker
from shared.wire.messages import Speculation

_FLOAT_TYPES: Final = frozenset({CacheType.AUTO, CacheType.F32, CacheType.F16, CacheType.BF16})

_LABEL: Final = 63  # bytes of a name in DNS

Resolve = Callable[[str, str], Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The options of `up`, as given."""

    target_model: Sequence[str]
    alias: Sequence[str]
    target_device: Sequence[str]
    draft_model: Sequence[str]
    draft_device: Sequence[str]
    host: str
    port: int
    lan: bool
    join_token: str
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
    gpu_layers: str
    tensor_split: str
    speculation: Speculation
    log_level: Level


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Programs in the order in which they start, and where to find them."""

    valkey: Program | None  # None: an outside Redis
    gateway: Program
    verifiers: tuple[Program, ...]
    drafters: tuple[Program, ...]
    redis: str
    url: str
    notes: tuple[str, ...]
    invitation: str = ""  # the command for a spare machine; empty: none can reach our Redis, or it is an outside one
    lan_url: str = ""  # the gateway's for other machines
    api_key: str = field(default="", repr=False)  # one that was made for this start
    beacon: Fleet | None = None  # how we announce ourselves


def make(
    wishes: Wishes,
    present: Sequence[Device],
    cores: int,
    resolve: Resolve,
    folder: Path,
    environment: Mapping[str, str],
    handed: Handed = Handed(),
) -> Plan:
    """The plan for `wishes` on the devices that are `present`.

    `resolve(spec, option)` finds models and comes last: it may download.

    `environment` is what children get besides Redis's address, and `handed` what a file says to each. Raises
    `StartError` for the first value that cannot work.
    """
    _check_values(wishes)
    gateway_environment = {**handed.twins.get("gateway", {}), **environment}
    wishes, api_key = _opened(wishes, gateway_environment)
    gateway = _gateway_options(wishes, bool(api_key or gateway_environment.get(api_keys.VARIABLE)))
    targets = place_targets(wishes.target_device, wishes.tensor_split, len(wishes.target_model), present)
    drafts = place_drafts(wishes.draft_device, len(wishes.draft_model), present, targets)
    port = ports.claim(wishes.host, wishes.port)
    server = (
        None
        if wishes.redis
        else embedded.place(wishes.redis_host, wishes.redis_port, lambda: join_token(wishes.join_token, state_folder()))
    )
    redis = server.url if server else wishes.redis
    notes = list(handed.notes)
    if server and wishes.redis_port not in (0, server.port):
        notes.append(f"port {wishes.redis_port} is in use, the embedded Valkey takes {server.port}")
    target_paths = [resolve(model, "--target-model") for model in wishes.target_model]
    aliases = name_targets(wishes.target_model, target_paths, wishes.alias)
    draft_paths = [resolve(model, "--draft-model") for model in wishes.draft_model]

    on_cpu = [_computes_here(*one, present, wishes) for one in zip(target_paths, targets, strict=True)]
    target_threads, draft_threads = divide(wishes.threads, cores, on_cpu, drafts)
    services = _Services({**environment, "DRAFTMESH_REDIS": redis}, handed, wishes, present)
    return Plan(
        valkey=embedded.program(server, folder, environment) if server else None,
        gateway=services.gateway((*gateway, "--host", wishes.host, "--port", str(port)), api_key),
        verifiers=services.verifiers(target_paths, targets, target_threads, aliases),
        drafters=services.drafters(draft_paths, drafts, draft_threads),
        redis=redis,
        url=f"http://{_reachable(wishes.host)}:{port}",
        notes=tuple(notes),
        invitation=_invitation(server.shared_url, wishes.draft_model) if server else "",
        lan_url=f"http://{ports.in_url(lan.address_of(wishes.host))}:{port}" if wishes.lan else "",
        api_key=api_key,
        beacon=_beacon(server, port, model_source.model_name(target_paths[0])) if server and wishes.lan else None,
    )


def _computes_here(path: Path, target: Sequence[Device], present: Sequence[Device], wishes: Wishes) -> bool:
    """Whether the CPU will compute layers of a target. Raises `StartError` for one that does not fit."""
    placed = offload_target(
        path,
        model_source.model_name(path),
        target,
        present,
        gpu_layers=wishes.gpu_layers,
        ctx=wishes.ctx,
        parallel=wishes.parallel,
    )
    if shortage := placed.shortage():
        raise StartError("--target-model", model_source.model_name(path), shortage)
    return placed.computes_here


def _opened(wishes: Wishes, environment: Mapping[str, str]) -> tuple[Wishes, str]:
    """The wishes with addresses that other machines reach, where that is wished, and an API key if nobody has one."""
    if not wishes.lan:
        return wishes, ""
    address = wishes.redis_host if wishes.redis_host != ports.LOOPBACK else lan.own_address()
    if not address:
        raise StartError("--lan", "on", "this machine has no address that others could reach; --redis-host names one")
    host = wishes.host if wishes.host != ports.LOOPBACK else "0.0.0.0"
    known = wishes.api_keys_file or environment.get(api_keys.VARIABLE) or wishes.no_auth
    return replace(wishes, host=host, redis_host=address), "" if known else api_keys.new()


def _invitation(shared_url: str, draft_models: Sequence[str]) -> str:
    """The command that makes another machine join; with our draft model where that is one it can get by the name."""
    if not shared_url:
        return ""
    named = next((spec for spec in draft_models if spec == model_source.DEFAULT or spec.startswith("hf:")), "")
    return f"draftmesh join {shared_url}" + (f" --draft-model {named}" if named else "")


def _beacon(server: embedded.Embedded, gateway: int, model: str) -> Fleet:
    name = f"draftmesh on {socket.gethostname()}"[:_LABEL]
    return Fleet(name=name, host=server.shared_host, port=server.port, model=model, gateway=gateway)


@dataclass(frozen=True, slots=True)
class _Services:
    """The services' programs: what they have in common, what is handed to each, and what each has of its own.

    The environment wins over what is handed down.
    """

    environment: Mapping[str, str]
    handed: Handed
    wishes: Wishes
    present: Sequence[Device]

    def program(self, name: str, service: str, options: Sequence[str], stage: int) -> Program:
        command = (*service_command(service), *options, "--log-level", self.wishes.log_level)
        environment = {**self.handed.twins.get(service, {}), **self.environment}
        return Program(name=name, command=command, stage=stage, environment=environment)

    def gateway(self, options: Sequence[str], api_key: str) -> Program:
        """Nobody else is told the key."""
        plain = self.program("gateway", "gateway", options, 0)
        return replace(plain, environment={**plain.environment, api_keys.VARIABLE: api_key}) if api_key else plain

    def verifiers(
        self,
        paths: Sequence[Path],
        targets: Sequence[Sequence[Device]],
        threads: Sequence[int],
        aliases: Sequence[Sequence[str]],
    ) -> tuple[Program, ...]:
        programs = []
        for index, path in enumerate(paths):
            options = ["--target-model", str(path), *self._where("target", targets[index], threads[index])]
            options += [part for alias in aliases[index] for part in ("--alias", alias)]
            name = f"verifier {index + 1}" if len(paths) > 1 else "verifier"
            programs.append(self.program(name, "verifier", (*options, *_target_options(self.wishes)), 1))
        return tuple(programs)

    def drafters(self, paths: Sequence[Path], drafts: Sequence[Device], threads: Sequence[int]) -> tuple[Program, ...]:
        """One with lookup, and one for each model."""
        programs = [self.program("lookup drafter", "drafter", (), 2)]
        for index, path in enumerate(paths):
            options = ("--draft-model", str(path), *self._where("draft", [drafts[index]], threads[index]))
            programs.append(self.program(f"drafter {index + 1}", "drafter", options, 2))
        return tuple(programs)

    def _where(self, role: str, place: Sequence[Device], threads: int) -> tuple[str, ...]:
        """Where a model runs, and how large."""
        where = (f"--{role}-device", devices.names_of(place, self.present), "--threads", str(threads))
        return (*where, "--ctx", str(self.wishes.ctx), "--parallel", str(self.wishes.parallel))


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
        if wishes.lan:
            raise StartError("--lan", "on", "opens the embedded Valkey, and --redis names another")
        if wishes.redis_host != ports.LOOPBACK:
            raise StartError("--redis-host", wishes.redis_host, "is the embedded Valkey's, and --redis names another")
    devices.parse_tensor_split(wishes.tensor_split)
    _check_devices("--target-device", wishes.target_device, "--target-model", len(wishes.target_model))
    _check_devices("--draft-device", wishes.draft_device, "--draft-model", len(wishes.draft_model))


def _check_devices(option: str, given: Sequence[str], model_option: str, count: int) -> None:
    if len(given) > count:
        raise StartError(option, given[count], f"one per {model_option}, and there are {count}")


def _gateway_options(wishes: Wishes, keys: bool) -> tuple[str, ...]:
    """Who may use the gateway, which has `keys` in its environment or not."""
    if wishes.api_keys_file:
        keys = bool(api_keys.read(wishes.api_keys_file))
    api_keys.require(wishes.host, keys, wishes.no_auth)
    file = (api_keys.OPTION, wishes.api_keys_file) if wishes.api_keys_file else ()
    return (*file, *(("--no-auth",) if wishes.no_auth else ()))


def _target_options(wishes: Wishes) -> tuple[str, ...]:
    options = {
        "--cache-type-k": wishes.cache_type_k.value,
        "--cache-type-v": wishes.cache_type_v.value,
        "--flash-attn": wishes.flash_attn.value,
        "--exactness": wishes.exactness.value,
        "--gpu-layers": wishes.gpu_layers,
        "--tensor-split": wishes.tensor_split,
        "--speculation": wishes.speculation.value,
    }
    return tuple(part for option, value in options.items() if value for part in (option, value))
