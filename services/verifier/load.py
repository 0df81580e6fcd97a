"""Makes a ready target from the options: file, device, context layout, measured costs and exactness.

Exactness decides the layout. *Strict* needs one KV stream per sequence, flash attention and a cache type whose kernels
do not depend on the number of rows; a probe checks that this device gives equal bits. *Law* uses the unified cache,
where requests may have different widths.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import structlog
from msgspec import structs

from services.verifier.calibrate import (
    FEW_PROBE_ROWS,
    PROBE_ROWS,
    SETTLED,
    Cache,
    Calibration,
    measure_exactness,
    still_holds,
)
from services.verifier.scheduler import most_outputs
from services.verifier.turns import Crew
from shared.errors import StartError
from shared.fleet.arriving import Threads, alone
from shared.folders import cache_folder
from shared.law.sampling import BrokenLogits
from shared.law.speedup import RowCosts
from shared.machine import load as machine_load
from shared.machine import resources
from shared.model import model_source, offload, row_costs
from shared.model.llama.context import Context, number_bytes
from shared.model.llama.fitness import Fitness
from shared.model.llama.library import build_info
from shared.model.llama.model import Model
from shared.model.llama.placement import Placement
from shared.model.memory import Layout
from shared.model.model_sizes import ModelSizes
from shared.model.offload import Offload
from shared.model.rows import MAX_LEAVES, LlamaError
from shared.settings.options import CacheType, Exactness, Switch
from shared.settings.verifier_options import TargetOptions, VerifierOptions
from shared.wire.messages import NOWHERE, Site

logger = structlog.get_logger()

DEFAULT_CONTEXT: Final = 4096  # a laptop has memory for several requests of this size
_TELL_S: Final = 2.0  # between two log lines about the progress of loading
# Types of keys and values that give equal bits for any number of rows under flash attention, the fastest first. With
# f16 or f32 for both, ggml's CPU backend uses another kernel from 64 rows on. With bf16 values a row after 4,000 tokens
# takes 1.4 times as long. GPU kernels need one type for keys and values.
_STRICT_TYPES: Final = (("bf16", "f16"), ("bf16", "bf16"))
_LAW_TYPES: Final = ("f16", "f16")
_FEW_COUNTS: Final = (1, 8)  # rows that are measured with fewer threads
_FEW_BUDGET_S: Final = 1.0
# Milliseconds of a new graph for a decode, before decodes have shown it: on a GPU, and without.
_GRAPH_MS: Final = (1.0, 0.3)


@dataclass(frozen=True, slots=True)
class LoadedTarget:
    """A loaded target with its measurements."""

    model: Model
    context: Context
    costs: RowCosts
    device: str  # as `--target-device` takes it
    level: str  # "strict" or "law"
    note: str  # why, for people
    noise: float  # largest difference in logits that the probe saw
    min_rows: int
    site: Site = NOWHERE  # the devices and cores that it computes on, for other processes
    calibration: Calibration = SETTLED
    part: Crew | None = None  # who computes beside a drafter on the same cores; None: always all
    graph_ms: float = 0.0  # what a new graph is assumed to cost


def _tell(line: str) -> None:
    logger.info("model_search", progress=line)


def load(options: VerifierOptions, place: Placement, threads: Threads | None = None) -> LoadedTarget:
    """Load the target onto the devices of `place` and measure it.

    `threads` None: no other process shares the cores. Raises `StartError` naming the option that cannot be satisfied.
    """
    path = model_source.resolve(options.target_model, "--target-model", _tell)
    sizes = model_source.sizes(path, options.target_model, "--target-model")
    placed = _offload(options.target, sizes, place)
    if shortage := placed.shortage():
        raise StartError("--target-model", options.target_model, shortage)
    logger.info("model_placed", placed=str(placed))
    try:
        model = Model(
            path,
            devices=place.devices,
            gpu_layers=placed.layers,
            extra_buffers=Fitness().extra_buffers(path, place.devices),
            tensor_split=place.shares,
            progress=_Progress("model_loading"),
        )
    except LlamaError as error:
        raise StartError("--target-model", options.target_model, placed.failure(str(error))) from None
    site = (threads or alone(options.target.threads))(placed.computes_here)
    return _Loader(options.target, path, model, place, placed, site).load()


def _offload(options: TargetOptions, sizes: ModelSizes, place: Placement) -> Offload:
    """Which layers go to which device, before anything is loaded. Raises `StartError` for too long a context."""
    trained = sizes.context or DEFAULT_CONTEXT
    if options.ctx > trained:
        raise StartError("--ctx", options.ctx, f"the model was trained for at most {trained} tokens")
    strict = options.exactness is Exactness.STRICT
    layout = Layout(
        context=options.ctx or min(trained, DEFAULT_CONTEXT),
        parallel=options.parallel,
        unified=not strict,
        branches=0 if strict else MAX_LEAVES - 1,
        outputs=max(PROBE_ROWS, most_outputs(options.parallel)),
        number_bytes=number_bytes(options.cache_type_k, options.cache_type_v),
    )
    free = offload.room(place.devices)
    if not strict:  # a cache that keeps only windows reorders its cells, so it is not bit-exact
        layout = offload.windows_or_all(sizes, layout, place.name, free)
    return offload.place(sizes, layout, options.gpu_layers, place.name, free, resources.available_memory())


class _Progress:
    """Logs how much of something long is done every few seconds."""

    def __init__(self, event: str, clock: Callable[[], float] = time.monotonic, **facts: str) -> None:
        self._event, self._facts = event, facts
        self._clock = clock
        self._told = clock()

    def __call__(self, fraction: float) -> None:
        now = self._clock()
        if now - self._told >= _TELL_S:
            self._told = now
            logger.info(self._event, percent=int(100 * fraction), **self._facts)


@dataclass(frozen=True, slots=True)
class _Loader:
    options: TargetOptions
    path: Path
    model: Model
    place: Placement
    placed: Offload
    site: Site

    def load(self) -> LoadedTarget:
        wanted = self.options.exactness
        if not self.model.can_roll_back:
            return self._without_rollback(wanted)
        if not self.placed.layout.swa_full:
            return self._law("; for lack of memory only sliding windows are kept, which is not bit-exact")
        if wanted is not Exactness.LAW:
            context, found = self._strict()
            exactness = found.exactness
            if exactness.at_no_cost:
                return self._loaded(context, found, "strict", "logits are bit-equal however they are computed", 0.0, 1)
            if wanted is Exactness.STRICT:
                if exactness.with_padding:
                    note = "bit-equal with at least two rows per decode, so single rows are padded"
                    return self._loaded(context, found, "strict", note, 0.0, 2)
                raise StartError(
                    "--exactness",
                    "strict",
                    f"this device, model and cache type cannot do it: logits vary by up to {exactness.noise:.3g};"
                    " use law, or --cache-type-k bf16 --cache-type-v bf16 --flash-attn on",
                )
            context.close()
        return self._law()

    def _law(self, remark: str = "") -> LoadedTarget:
        types = self._types(_LAW_TYPES)
        context = self._context(types, strict=False)
        found = self._measure(context, "unified", types)
        noise = found.exactness.noise
        note = f"logits vary by up to {noise:.2g} with the rows that share a decode{remark}"
        return self._loaded(context, found, "law", note, noise, 1)

    def _without_rollback(self, wanted: Exactness) -> LoadedTarget:
        if wanted is Exactness.STRICT:
            raise StartError("--exactness", "strict", "this model cannot drop tokens, so it cannot be probed; use law")
        context = self._context(self._types(_LAW_TYPES), strict=False)
        note = "a recurrent or hybrid model: its state cannot be rolled back, so it decodes plainly"
        return self._loaded(context, replace(SETTLED, rows={1: 1.0}), "law", note, 0.0, 1)

    def _strict(self) -> tuple[Context, Calibration]:
        """A context in streams with the first types of keys and values that are bit-exact, or else with the last."""
        wanted = _STRICT_TYPES if not self.place.gpus else _STRICT_TYPES[-1:]
        *others, last = dict.fromkeys(map(self._types, wanted))
        for types in others:
            context = self._context(types, strict=True)
            found = self._measure(context, "streams", types)
            if found.exactness.with_padding:
                return context, found
            context.close()
        context = self._context(last, strict=True)
        return context, self._measure(context, "streams", last)

    def _types(self, default: tuple[str, str]) -> tuple[str, str]:
        """The types of keys and values: from the options, or else the default."""
        given = (self.options.cache_type_k, self.options.cache_type_v)
        key, value = (
            usual if option is CacheType.AUTO else option for option, usual in zip(given, default, strict=True)
        )
        return key, value

    def _context(self, types: tuple[str, str], *, strict: bool) -> Context:
        options = self.options
        flash = {Switch.ON: True, Switch.OFF: False}.get(options.flash_attn, True if strict else None)
        key, value = types
        layout = self.placed.layout
        try:
            return Context(
                self.model,
                n_ctx=layout.context,
                sequences=options.parallel,
                unified=not strict,
                branches=0 if strict else MAX_LEAVES - 1,
                threads=self.site.most,
                max_outputs=layout.outputs,
                swa_full=layout.swa_full,
                cache_type_k=key,
                cache_type_v=value,
                flash_attn=flash,
            )
        except LlamaError as error:
            raise StartError("--ctx", layout.context, self.placed.failure(str(error))) from None

    def _cache(self, layout: str, types: tuple[str, str], threads: int) -> Cache:
        options = self.options
        return Cache(
            cache_folder() / "calibration",
            self.path,
            device=self.place.description,
            build=build_info(),
            layout=layout,
            threads=threads,
            cache_types=(*types, options.flash_attn),
            gpu_layers=self.placed.layers,
            swa_full=self.placed.layout.swa_full,
            tensor_split=",".join(f"{share:g}" for share in self.place.shares),
            extra_buffers=self.model.extra_buffers,
            sequences=min(options.parallel, 2),
        )

    def _measure(self, context: Context, layout: str, types: tuple[str, str]) -> Calibration:
        site = self.site
        cache = self._cache(layout, types, site.most)
        tokens = self.model.vocabulary.tokenize(row_costs.PROBE_TEXT)
        found = cache.load()
        if found is not None and found[0] and still_holds(context, tokens, found[0]):
            return Calibration(*found, cache)
        times = row_costs.time_rows(
            context, tokens, told=_Progress("calibration_progress", of="the cost of rows"), cpu=machine_load.read
        )
        told = _Progress("calibration_progress", of="how exact this device is")
        threads = (site.most, site.threads if site.threads < site.most else 0)
        probed = PROBE_ROWS if layout == "streams" else FEW_PROBE_ROWS  # law does not need bit-equal logits
        try:
            exactness = found[1] if found is not None else measure_exactness(context, tokens, probed, told, threads)
        except BrokenLogits:
            raise StartError(
                "--target-model",
                self.path.name,
                "gives numbers that are not finite: take another file of the model, because this one may be damaged, or"
                " another --target-device",
            ) from None
        # Times from a busy machine would say for weeks that drafts pay, or that they do not.
        cache.store({} if times.is_noisy else times.costs, exactness)
        if times.is_noisy:
            logger.warning("calibration_noisy", spread=round(times.noise, 2), contended=times.contended)
        return Calibration(times.costs, exactness, cache, times.is_noisy, tuple(tokens))

    def _loaded(
        self, context: Context, found: Calibration, level: str, note: str, noise: float, min_rows: int
    ) -> LoadedTarget:
        costs, device = RowCosts(found.rows), self.place.name
        part = None
        if self._may_give_way and (level == "law" or found.exactness.threads == 0.0):
            part = Crew(self.site.threads, RowCosts(self._beside(context, found.rows)))
        site = self.site if part else structs.replace(self.site, threads=self.site.most)
        graph_ms = _GRAPH_MS[not self.place.gpus]
        return LoadedTarget(
            self.model, context, costs, device, level, note, noise, min_rows, site, found, part, graph_ms
        )

    @property
    def _may_give_way(self) -> bool:
        return self.site.threads < self.site.most and self.model.can_roll_back

    def _beside(self, context: Context, rows: Mapping[int, float]) -> dict[int, float]:
        """The costs of rows with the threads that are left beside a drafter, from those with all.

        Two counts are measured, and decodes refine the rest.
        """
        context.use_threads(self.site.threads)
        tokens = self.model.vocabulary.tokenize(row_costs.PROBE_TEXT)
        few = row_costs.time_rows(context, tokens, _FEW_COUNTS, budget_s=_FEW_BUDGET_S).costs
        context.use_threads(self.site.most)
        longer = {count: few[count] / RowCosts(rows)(count) for count in few}
        first, last = min(longer), max(longer)
        return row_costs.rising({count: ms * longer[first if count <= first else last] for count, ms in rows.items()})
