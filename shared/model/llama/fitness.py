"""Whether llama.cpp works here: tested once in a child process for each build, device and kind of weights.

Later starts read the verdict from one small file. The faster kernels for rearranged weights ("extra buffers") fail most
often, because they are compiled for a processor's newest instructions. llama.cpp works without them. `python -m
shared.model.llama.fitness` tests the usual kinds on the CPU, as `make install` does at its end.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import structlog

from shared.errors import StartError
from shared.machine.devices import CPU
from shared.model.llama import library, plugins, self_test, weights
from shared.model.llama.backend_device import BackendDevice
from shared.model.llama.self_test import SelfTestOutcome, State
from shared.model.llama.start_check import REBUILD
from shared.model.llama.verdicts import SelfTestVerdict, Verdicts
from shared.model.rows import LlamaError

logger = structlog.get_logger()

Say = Callable[[str], None]
Attempt = Callable[[Sequence[int], str, bool], SelfTestOutcome]

DEGRADED: Final = 3  # exit status of this module: works, without extra buffers
BROKEN: Final = 1
_USUAL: Final = (1, 2, 3, 8, 12, 14)  # F16, Q4_0, Q4_1, Q8_0, Q4_K, Q6_K in ggml.h


def on_stderr(line: str) -> None:
    """Prints on standard error, because a command's standard output is for its results."""
    print(line, file=sys.stderr, flush=True)


def _log(line: str) -> None:
    logger.info("self_test", progress=line)


def _log_warning(line: str) -> None:
    logger.warning("self_test_failed", note=line)


class Fitness:
    """The verdicts of this build of llama.cpp. Calls `say` before a test starts, and `warn` with what does not work."""

    def __init__(self, say: Say = _log, warn: Say = _log_warning, attempt: Attempt = self_test.run) -> None:
        self._say = say
        self._warn = warn
        self._attempt = attempt
        self._verdicts = Verdicts([library.folder(), plugins.folder()])

    def extra_buffers(self, model: Path, devices: Sequence[BackendDevice] = ()) -> bool:
        """Whether to load `model` onto `devices` with extra buffers. Always tests the CPU too, because every model uses
        it.

        Raises `LlamaError` if llama.cpp would crash or compute wrongly without them too.
        """
        kinds = weights.kinds(model)
        for device in devices:
            if device.kind != CPU:
                self._of_device(kinds, device)
        return self.of_processor(kinds).extra_buffers

    def of_processor(self, kinds: Sequence[int]) -> SelfTestVerdict:
        """The verdict for the CPU. Raises `LlamaError` if llama.cpp does not work on it."""
        verdict = self._once(f"{CPU}: {list(kinds)}", CPU, lambda: self._try_processor(kinds))
        if verdict.note:
            self._warn(verdict.note)
        return verdict

    def _of_device(self, kinds: Sequence[int], device: BackendDevice) -> None:
        def attempt() -> SelfTestVerdict | None:
            outcome = self._attempt(kinds, device.label, True)
            if outcome.state is State.FAILED:
                raise LlamaError(
                    f"llama.cpp failed its self-test on {device.description} ({outcome.what}); use another device"
                )
            return self._verdict(outcome)

        self._once(f"{device.name} {device.description}: {list(kinds)}", device.description, attempt)

    def _try_processor(self, kinds: Sequence[int]) -> SelfTestVerdict | None:
        first = self._attempt(kinds, "", True)
        if first.state is not State.FAILED:
            return self._verdict(first)
        second = self._attempt(kinds, "", False)
        if second.state is State.FAILED:
            raise LlamaError(f"llama.cpp does not work on this processor ({second.what}); {REBUILD}")
        return SelfTestVerdict(
            extra_buffers=False,
            note=f"llama.cpp failed its self-test on this processor ({first.what}), so it runs without the kernels for"
            " rearranged weights: prompts take 1.5 times as long, or up to 5 times on a processor with AMX. To have"
            f" them, {REBUILD}",
        )

    def _verdict(self, outcome: SelfTestOutcome) -> SelfTestVerdict | None:
        """The verdict; None if the test could not run, so that this process trusts llama.cpp and the next one tests."""
        if outcome.state is State.UNKNOWN:
            logger.warning("self_test_not_run", reason=outcome.what)
            return None
        return SelfTestVerdict()

    def _once(self, subject: str, where: str, attempt: Callable[[], SelfTestVerdict | None]) -> SelfTestVerdict:
        def told() -> SelfTestVerdict | None:
            self._say(f"testing llama.cpp on {where} with weights of this kind, once: a few seconds")
            return attempt()

        return self._verdicts.once(subject, told) or SelfTestVerdict()


def main() -> int:
    """Test the usual kinds of weights on the CPU and say how it went: 0, `DEGRADED` or `BROKEN`."""
    try:
        library.start()
        verdict = Fitness(on_stderr, on_stderr).of_processor(_USUAL)
    except (LlamaError, StartError) as error:
        print(f"error: {error}", file=sys.stderr)
        return BROKEN
    if verdict.note:
        return DEGRADED
    kinds = ", ".join(map(weights.name, _USUAL))
    print(f"llama.cpp works on this processor: 1 to 64 rows at once with weights of {kinds}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
