"""What a run saw, as tables."""

from collections import Counter
from statistics import median

from rich.table import Table

from tests.chaos.records import Ending, Kind
from tests.chaos.run import Seen
from tests.chaos.verdict import endings, recovery_s


def fault_table(seen: Seen) -> Table:
    """By kind of fault: how often it struck, how the requests under way ended, and how long streams stood still."""
    table = Table(title="Requests under way when a fault struck, by how they ended")
    table.add_column("fault")
    for name in ("struck", *Ending, "stood still, median s", "worst s"):
        table.add_column(name, justify="right")
    for kind in Kind:
        faults = [fault for fault in seen.faults if fault.kind is kind]
        if not faults:
            continue
        counts = sum((endings(fault, seen.requests) for fault in faults), Counter[Ending]())
        waits = [recovery_s(fault, seen.requests) for fault in faults]
        numbers = [len(faults), *(counts[ending] for ending in Ending)]
        times = [median(waits), max(waits)]
        table.add_row(kind, *(str(number or "") for number in numbers), *(f"{value:.1f}" for value in times))
    return table


def summary(seen: Seen) -> str:
    """All requests in a line, and what else is worth knowing."""
    counts = Counter(request.ending for request in seen.requests)
    tokens = sum(len(request.tokens) for request in seen.requests)
    parts = [f"{counts[ending]} {ending}" for ending in Ending if counts[ending]]
    freed = [f"  {fault.target}: {fault.note}" for fault in seen.faults if fault.kind is Kind.KILL_GATEWAY]
    lines = [
        f"{len(seen.requests)} requests ({', '.join(parts)}), {tokens} tokens, {len(seen.faults)} faults",
        f"{seen.zombies} commits of verifiers that had lost the request were refused",
        *(["requests of killed gateways:", *freed] if freed else []),
    ]
    return "\n".join(lines)
