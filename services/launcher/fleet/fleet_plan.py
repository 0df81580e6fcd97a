"""Decides and checks what `up` starts, before anything starts: it finds every bad value.

The commands are the ones a user could type. Redis's address travels in the environment, because a command line, and a
password in it, can be read by every user of the machine.
"""

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from services.launcher.facts.placing import offload_target, place_drafts, place_targets, takes_turns
from services.launcher.fleet import embedded, ports
from services.launcher.fleet.aliases import name_targets
from services.launcher.fleet.child import Program, service_command
from services.launcher.fleet.fleet_notice import AnnouncedFleet
from services.launcher.fleet.machines import Machines, Token
from services.launcher.settings.service_options import Handed
from services.launcher.settings.up_options import UpOptions
from shared.errors import StartError
from shared.machine import devices
from shared.machine.devices import Device
from shared.model import chat_templates, model_source
from shared.process import api_keys, lifecycle
from shared.settings.drafter_options import DrafterOptions, DraftOptions
from shared.settings.gateway_options import GatewayOptions
from shared.settings.options import CacheType, Switch
from shared.settings.options_struct import arguments
from shared.settings.verifier_options import VerifierOptions
from shared.wire import broker

_FLOAT_TYPES: Final = frozenset({CacheType.AUTO, CacheType.F32, CacheType.F16, CacheType.BF16})

_SHARED: Final = (
    "target and drafter compute in the same place: in turns or side by side, whichever is faster (`draftmesh status`"
    " says which), and while nobody drafts the target has all of it"
)
_LABEL: Final = 63  # bytes of a name in DNS

Resolve = Callable[[str, str], Path]


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
    invitation: str = ""  # the command for a spare machine; empty: others cannot reach our Redis, or it is external
    tokens: tuple[Token, ...] = ()  # of the machines that may join
    lan_url: str = ""  # the gateway's URL for other machines
    api_key: str = field(default="", repr=False)  # an API key that was made for this start
    beacon: AnnouncedFleet | None = None  # how we announce ourselves


def make(
    options: UpOptions,
    present: Sequence[Device],
    resolve: Resolve,
    folder: Path,
    environment: Mapping[str, str],
    handed: Handed = Handed(),
) -> Plan:
    """The plan for `options` on the devices that are `present`.

    `resolve(spec, option)` finds models and comes last: it may download.

    Children get `environment` besides Redis's address, and `handed` holds each one's settings from a file. Raises
    `StartError` for the first bad value.
    """
    _check_values(options)
    gateway_environment = {**handed.twins.get("gateway", {}), **environment}
    options, api_key = _opened(options, gateway_environment)
    _check_access(options, bool(api_key or gateway_environment.get(api_keys.VARIABLE)))
    targets = place_targets(options.target_device, options.target.tensor_split, len(options.target_model), present)
    drafts = place_drafts(options.draft_device, len(options.draft_model), present, targets)
    port = ports.claim(options.host, options.port)
    server = None if options.redis else embedded.place(options.redis_host, options.redis_port, Machines().tokens)
    redis = server.url if server else options.redis
    notes = list(handed.notes)
    if server and options.redis_port not in (0, server.port):
        notes.append(f"port {options.redis_port} is in use, the embedded Valkey takes {server.port}")
    target_paths = [resolve(model, "--target-model") for model in options.target_model]
    aliases = name_targets(options.target_model, target_paths, options.alias)
    draft_paths = [resolve(model, "--draft-model") for model in options.draft_model]

    here = [_computes_here(*one, present, options) for one in zip(target_paths, targets, strict=True)]
    if any(takes_turns(*one, draft) for one in zip(targets, here, strict=True) for draft in drafts):
        notes.append(_SHARED)
    services = _Services({**environment, "DRAFTMESH_REDIS": redis}, handed, options, present)
    return Plan(
        valkey=embedded.program(server, folder, environment) if server else None,
        gateway=services.gateway(port, api_key),
        verifiers=services.verifiers(target_paths, targets, aliases),
        drafters=services.drafters(draft_paths, drafts),
        redis=redis,
        url=f"http://{_reachable(options.host)}:{port}",
        notes=tuple(notes),
        invitation=_invitation(server.shared_url, options.draft_model) if server else "",
        tokens=server.tokens if server else (),
        lan_url=f"http://{ports.in_url(ports.address_of(options.host))}:{port}" if options.lan else "",
        api_key=api_key,
        beacon=_beacon(server, port, model_source.model_name(target_paths[0])) if server and options.lan else None,
    )


def _computes_here(path: Path, target: Sequence[Device], present: Sequence[Device], options: UpOptions) -> bool:
    """Whether the CPU will compute layers of a target. Raises `StartError` for one that does not fit."""
    placed = offload_target(
        path,
        model_source.model_name(path),
        target,
        present,
        gpu_layers=options.target.gpu_layers,
        ctx=options.target.ctx,
        parallel=options.target.parallel,
    )
    if shortage := placed.shortage():
        raise StartError("--target-model", model_source.model_name(path), shortage)
    return placed.computes_here


def _opened(options: UpOptions, environment: Mapping[str, str]) -> tuple[UpOptions, str]:
    """With `--lan`, the options with addresses for other machines, and a new API key if there is none."""
    if not options.lan:
        return options, ""
    address = options.redis_host if options.redis_host != ports.LOOPBACK else ports.own_address()
    if not address:
        raise StartError("--lan", "on", "this machine has no address that others could reach; --redis-host names one")
    host = options.host if options.host != ports.LOOPBACK else "0.0.0.0"
    known = options.api_keys_file or environment.get(api_keys.VARIABLE) or options.no_auth
    return replace(options, host=host, redis_host=address), "" if known else api_keys.new()


def _invitation(shared_url: str, draft_models: Sequence[str]) -> str:
    """The command that makes another machine join; with our draft model if that machine can get it by its name."""
    if not shared_url:
        return ""
    named = next((spec for spec in draft_models if spec == model_source.DEFAULT or spec.startswith("hf:")), "")
    return f"draftmesh join {shared_url}" + (f" --draft-model {named}" if named else "")


def _beacon(server: embedded.Embedded, gateway: int, model: str) -> AnnouncedFleet:
    name = f"draftmesh on {socket.gethostname()}"[:_LABEL]
    return AnnouncedFleet(name=name, host=server.shared_host, port=server.port, model=model, gateway=gateway)


@dataclass(frozen=True, slots=True)
class _Services:
    """The services' programs: each one's options, and beside them its settings from the file.

    The environment wins over the file.
    """

    environment: Mapping[str, str]
    handed: Handed
    options: UpOptions
    present: Sequence[Device]

    def program(
        self, name: str, service: str, options: GatewayOptions | VerifierOptions | DrafterOptions, stage: int
    ) -> Program:
        command = (*service_command(service), *arguments(replace(options, log_level=self.options.log_level)))
        environment = {**self.handed.twins.get(service, {}), **self.environment}
        return Program(name=name, command=command, stage=stage, environment=environment)

    def gateway(self, port: int, api_key: str) -> Program:
        """Only the gateway gets the key."""
        options = GatewayOptions(
            host=self.options.host,
            port=port,
            api_keys_file=self.options.api_keys_file,
            no_auth=self.options.no_auth,
            drain=self.options.drain,
        )
        plain = self.program("gateway", "gateway", options, 0)
        plain = replace(plain, grace_s=self.options.drain + lifecycle.CLOSING_S)
        return replace(plain, environment={**plain.environment, api_keys.VARIABLE: api_key}) if api_key else plain

    def verifiers(
        self,
        paths: Sequence[Path],
        targets: Sequence[Sequence[Device]],
        aliases: Sequence[Sequence[str]],
    ) -> tuple[Program, ...]:
        programs = []
        for index, path in enumerate(paths):
            options = VerifierOptions(
                target_model=str(path),
                alias=list(aliases[index]),
                chat_template=self._chat_template(index),
                target_device=devices.names_of(targets[index], self.present),
                target=self.options.target,
            )
            name = f"verifier {index + 1}" if len(paths) > 1 else "verifier"
            programs.append(self.program(name, "verifier", options, 1))
        return tuple(programs)

    def _chat_template(self, index: int) -> str:
        """What target `index` takes; a file by its absolute path, because `up` checked it from this folder."""
        given = self.options.chat_template
        spec = given[index] if index < len(given) else chat_templates.OWN
        named = spec in ("", chat_templates.OWN) or spec in chat_templates.BUILT_IN
        return spec if named else str(Path(spec).expanduser().absolute())

    def drafters(self, paths: Sequence[Path], drafts: Sequence[Device]) -> tuple[Program, ...]:
        """One lookup drafter, and one drafter for each model, which finds its share of the cores itself."""
        programs = [self.program("lookup drafter", "drafter", DrafterOptions(), 2)]
        for index, path in enumerate(paths):
            options = DraftOptions(
                draft_model=str(path),
                draft_device=devices.names_of([drafts[index]], self.present),
                ctx=self.options.target.ctx,
                parallel=self.options.target.parallel,
                offline=self.options.target.offline,
            )
            programs.append(self.program(f"drafter {index + 1}", "drafter", DrafterOptions(draft=options), 2))
        return tuple(programs)


def _reachable(host: str) -> str:
    """`host` in the form for a URL on this machine."""
    if host in ("0.0.0.0", "::", ""):
        return ports.LOOPBACK
    return ports.in_url(host)


def _check_values(options: UpOptions) -> None:
    if options.target.cache_type_v not in _FLOAT_TYPES and options.target.flash_attn is Switch.OFF:
        raise StartError("--cache-type-v", options.target.cache_type_v, "quantised values need --flash-attn auto or on")
    if options.redis:
        broker.check(options.redis)
        if options.lan:
            raise StartError("--lan", "on", "opens the embedded Valkey, and --redis names another")
        if options.redis_host != ports.LOOPBACK:
            raise StartError("--redis-host", options.redis_host, "is the embedded Valkey's, and --redis names another")
    devices.parse_tensor_split(options.target.tensor_split)
    _check_count("--target-device", options.target_device, "--target-model", len(options.target_model))
    _check_count("--chat-template", options.chat_template, "--target-model", len(options.target_model))
    for template in options.chat_template:
        chat_templates.find(template)
    _check_count("--draft-device", options.draft_device, "--draft-model", len(options.draft_model))


def _check_count(option: str, given: Sequence[str], model_option: str, count: int) -> None:
    if len(given) > count:
        raise StartError(option, given[count], f"one per {model_option}, and there are {count}")


def _check_access(options: UpOptions, keys: bool) -> None:
    """Raise `StartError` if everyone could use the gateway unasked; `keys`: it has keys in its environment."""
    if options.api_keys_file:
        keys = bool(api_keys.read(options.api_keys_file))
    api_keys.require(options.host, keys, options.no_auth)
