"""The page of a card: one HTML file that asks no other host for anything. All figures are the card's."""

from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from services.launcher.bench.card import Card, ReportedComparison
from services.launcher.bench.charts import WIDTH, charts, classes

_TEMPLATE = "page.html.jinja"


def render(card: Card) -> str:
    """The whole file, well-formed as XML too."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((files(__package__) / _TEMPLATE).read_text(encoding="utf-8"))
    return template.render(
        card=card,
        headlines=_headlines(card),
        charts=charts(card),
        classes=classes(card),
        width=WIDTH,
        gib=card.machine.memory_bytes / (1 << 30),
        notes=_NOTES,
    )


def _headlines(card: Card) -> list[ReportedComparison]:
    """The speed-up by drafts per temperature, over all workloads, at the fewest requests at once."""
    plain = {server.name for server in card.servers if server.plain}
    fewest = min(card.settings.concurrencies)
    found: dict[float, ReportedComparison] = {}
    for one in card.comparisons:
        if one.peer in plain and one.concurrency == fewest and one.decode:
            # With several workloads, the figures over all of them come after those of each.
            found[one.temperature] = one
    return list(found.values())


_NOTES = (
    "Decode speed is (tokens − 1) / (last arrival − first arrival) of an answer: reading the prompt is left out.",
    "A speed-up is the geometric mean of the ratios of pairs of answers to the same request, asked in turn within one"
    " run; the range is that of single pairs. Requests without drafts begin with another reference number, so that no"
    " prefix cache knows them.",
    "Acceptance is the share of verified drafts that the target agreed with.",
    "Gaps are those between bursts: tokens that were drafted arrive together.",
)
