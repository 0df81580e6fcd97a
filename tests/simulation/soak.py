"""`python -m tests.simulation.soak --seeds N --first S`: many runs of the whole system, until one breaks a promise.

A seed that failed does the same again: `--seeds 1 --first THAT --tell` shows every command with its moment.
"""

import argparse
import os
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from functools import partial
from itertools import islice
from pathlib import Path

from tests.simulation import partners, system

PIECE = 50  # seeds per piece of work


def soak(seeds: Sequence[int], tell: Callable[[str], object] | None = None) -> tuple["Counter[str]", int | None, str]:
    """What became of the clients, the first seed that failed, if one did, and how."""
    fates: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        partners.vocabulary_file(Path(folder))
        for seed in seeds:
            try:
                fates.update(system.run(seed, Path(folder), tell).fates)
            except Exception:
                return fates, seed, traceback.format_exc()
    return fates, None, ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--tell", action="store_true", help="print what happens, in this process")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    if options.tell:
        return _report(*soak(seeds, partial(print, flush=True)))
    fates: Counter[str] = Counter()
    pieces = (seeds[start : start + PIECE] for start in range(0, len(seeds), PIECE))
    done = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        running = {pool.submit(soak, piece) for piece in islice(pieces, options.jobs)}
        while running:
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                found, seed, how = future.result()
                fates += found
                if seed is not None:
                    return _report(fates, seed, how)
                done += PIECE
                if done % 1000 == 0:
                    print(f"{done} seeds: {dict(fates)}", flush=True)
            running |= {pool.submit(soak, piece) for piece in islice(pieces, len(finished))}
    return _report(fates, None, "")


def _report(fates: "Counter[str]", seed: int | None, how: str) -> int:
    print(f"clients: {dict(fates)}")
    if seed is None:
        print("every promise was kept")
        return 0
    print(f"{how}\nseed {seed} failed; replay it:\n  python -m tests.simulation.soak --seeds 1 --first {seed} --tell")
    return 1


if __name__ == "__main__":
    sys.exit(main())
