"""Makes a ready model drafter from the options: file, device, context, vocabulary."""

from pathlib import Path

import structlog
from msgspec.structs import replace

from services.drafter import step_costs
from services.drafter.card import introduce
from services.drafter.model_proposer import MOST, RANKS, ModelProposer
from shared.errors import StartError
from shared.fleet.arriving import Threads
from shared.law.speedup import RowCosts
from shared.machine import resources
from shared.model import model_source, offload, row_costs
from shared.model.llama.context import Context
from shared.model.llama.fitness import Fitness
from shared.model.llama.model import Model
from shared.model.llama.placement import Placement
from shared.model.memory import Layout
from shared.model.rows import LlamaError
from shared.model.vocabulary import fingerprint
from shared.settings.drafter_options import DraftOptions
from shared.wire.messages import DrafterCard

logger = structlog.get_logger()

# Tokens per session. The drafter reads only the head and tail of longer prompts. The cells are allocated at the start.
DEFAULT_CONTEXT = 2048


def _tell(line: str) -> None:
    logger.info("model_search", progress=line)


def find(spec: str) -> Path:
    """The model's file, downloaded if it is not here. Raises `StartError` if it cannot be found or read."""
    path = model_source.resolve(spec, "--draft-model", _tell)
    model_source.sizes(path, spec, "--draft-model")
    return path


class ModelDrafter:
    """A loaded draft model with its proposer. Raises `StartError` naming the option that cannot be satisfied."""

    def __init__(self, options: DraftOptions, path: Path, place: Placement, threads: Threads) -> None:
        """Load the model at `path`, which the user named in `options`."""
        spec, parallel = options.draft_model, options.parallel
        self.path = path
        self.name = model_source.model_name(self.path)
        self.device = place.name
        sizes = model_source.sizes(self.path, spec, "--draft-model")
        layout = Layout(
            context=min(options.ctx or DEFAULT_CONTEXT, sizes.context or DEFAULT_CONTEXT),
            parallel=parallel,
            outputs=parallel * MOST,
        )
        free = offload.room(place.devices)
        layout = offload.windows_or_all(sizes, layout, self.device, free)
        placed = offload.place(sizes, layout, options.gpu_layers, self.device, free, resources.available_memory())
        if shortage := placed.shortage():
            raise StartError("--draft-model", spec, shortage)
        logger.info("model_placed", placed=str(placed))
        try:
            extra_buffers = Fitness().extra_buffers(self.path, place.devices)
            self._model = Model(self.path, devices=place.devices, gpu_layers=placed.layers, extra_buffers=extra_buffers)
        except LlamaError as error:
            raise StartError("--draft-model", spec, placed.failure(str(error))) from None
        if not self._model.can_roll_back:
            raise StartError("--draft-model", spec, "a recurrent or hybrid model cannot take back guesses")
        self._site = threads(placed.computes_here)
        try:
            self._context = Context(
                self._model,
                n_ctx=layout.context,
                sequences=parallel,
                unified=True,
                branches=layout.branches,
                max_outputs=layout.outputs,
                swa_full=layout.swa_full,
                threads=self._site.most,
            )
        except LlamaError as error:
            raise StartError("--ctx", layout.context, placed.failure(str(error))) from None
        probe = self._model.vocabulary.tokenize(row_costs.PROBE_TEXT)
        step_ms = step_costs.measure(self._context, probe, RANKS)
        logger.info("steps_measured", step_ms={rows: round(ms, 2) for rows, ms in step_ms.items()})
        costs = RowCosts(step_ms)
        self.step_ms = costs(1)
        self.beside_step_ms = 0.0
        if self._site.threads < self._site.most:
            self._context.use_threads(self._site.threads)
            self.beside_step_ms = step_costs.measure(self._context, probe, RANKS, counts=(1,))[1]
            # All cores are never slower than some of them: what else ran during the first measurement was.
            self.step_ms = min(self.step_ms, self.beside_step_ms)
        self.proposer = ModelProposer(self._context, costs, site=self._site)
        self.texts = self._model.vocabulary.texts()
        self.fingerprint = fingerprint(self.texts)

    def card(self, instance: str, vocabulary: str) -> DrafterCard:
        """The drafter's card; `vocabulary` is the digest under which its vocabulary is stored in Redis."""
        return replace(
            introduce(instance, "model", self._context.sequences),
            model=self.name,
            fingerprint=self.fingerprint,
            vocabulary=vocabulary,
            n_vocab=self._context.n_vocab,
            device=self.device,
            step_ms=self.step_ms,
            beside_step_ms=self.beside_step_ms,
            site=self._site,
        )

    def close(self) -> None:
        self._context.close()
        self._model.close()
