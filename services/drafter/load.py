"""From options to a model drafter that is ready: file, device, context, vocabulary."""

import structlog

from services.drafter import step_costs
from services.drafter.card import introduce
from services.drafter.model_proposer import RANKS, ModelProposer
from shared import models
from shared.arriving import Threads
from shared.errors import StartError
from shared.llama.context import Context
from shared.llama.model import Model
from shared.llama.placement import Placement
from shared.messages import DrafterCard
from shared.rows import MAX_LEAVES, LlamaError
from shared.speedup import RowCosts
from shared.vocabulary import fingerprint

logger = structlog.get_logger()

# Per session. Longer prompts are drafted from their head and tail, and every session has its cells from the start.
DEFAULT_CONTEXT = 2048


def _tell(line: str) -> None:
    logger.info("model_sought", progress=line)


class ModelDrafter:
    """A loaded draft model with its proposer. Raises `StartError` naming the option that cannot be had."""

    def __init__(self, spec: str, place: Placement, ctx: int, parallel: int, threads: Threads, gpu_layers: int) -> None:
        self.path = models.resolve(spec, "--draft-model", _tell)
        self.name = models.model_name(self.path)
        self.device = place.name
        try:
            self._model = Model(self.path, devices=place.devices, gpu_layers=gpu_layers)
        except LlamaError as error:
            raise StartError("--draft-model", spec, str(error)) from None
        if not self._model.can_roll_back:
            raise StartError("--draft-model", spec, "a recurrent or hybrid model cannot take back guesses")
        self._site = threads(place.on_cpu(gpu_layers))
        try:
            self._context = Context(
                self._model,
                n_ctx=min(ctx or DEFAULT_CONTEXT, self._model.n_ctx_train),
                sequences=parallel,
                unified=True,
                branches=MAX_LEAVES - 1,
                threads=self._site.threads,
            )
        except LlamaError as error:
            raise StartError("--ctx", ctx, f"{error}; lower --ctx or --parallel") from None
        probe = self._model.vocabulary.tokenize(step_costs.PROBE_TEXT)
        step_ms = step_costs.measure(self._context, probe, RANKS)
        logger.info("steps_measured", step_ms={rows: round(ms, 2) for rows, ms in step_ms.items()})
        costs = RowCosts(step_ms)
        self.step_ms = costs(1)
        self.proposer = ModelProposer(self._context, costs)
        self.texts = self._model.vocabulary.texts()
        self.fingerprint = fingerprint(self.texts)

    def card(self, instance: str, vocabulary: str) -> DrafterCard:
        """Our card; `vocabulary` is where ours lies in Redis."""
        return introduce(
            instance,
            "model",
            self._context.sequences,
            model=self.name,
            fingerprint=self.fingerprint,
            vocabulary=vocabulary,
            n_vocab=self._context.n_vocab,
            device=self.device,
            step_ms=self.step_ms,
            site=self._site,
        )

    def close(self) -> None:
        self._context.close()
        self._model.close()
