"""`python -m bench.endurance.counted FILE MODULE …` runs a service that writes its Python objects by type on SIGUSR2.

Counting stands still for as long as it takes, so nothing else should be measured meanwhile.
"""

import gc
import os
import runpy
import signal
import sys
from collections import Counter
from pathlib import Path

import msgspec


def count() -> dict[str, int]:
    """How many objects of each type the collector knows of; atoms such as `int` and `str` are not among them."""
    gc.collect()
    types = Counter(type(found) for found in gc.get_objects())
    return {f"{kind.__module__}.{kind.__qualname__}": number for kind, number in types.items()}


def main() -> None:
    """Run the module with the arguments after it."""
    file, module, *arguments = sys.argv[1:]
    target = Path(file)

    def write(*_: object) -> None:
        whole = target.with_suffix(f".{os.getpid()}")
        whole.write_bytes(msgspec.json.encode(count()))
        whole.replace(target)

    signal.signal(signal.SIGUSR2, write)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
