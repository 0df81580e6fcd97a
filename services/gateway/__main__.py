"""`python -P -m services.gateway`: starts one gateway from options or their environment twins."""

import gc
from typing import Final

from services.gateway.service import GatewaySettings, serve
from shared.process import lifecycle, logs
from shared.settings import command_line
from shared.settings.gateway_options import GatewayOptions

_COLLECT_AFTER: Final = 50_000  # objects made and not freed: a few MB


def main(options: GatewayOptions) -> None:
    """Speak HTTP to clients for the models that verifiers on this Redis serve."""
    logs.configure("gateway", options.log_level)
    _freeze_garbage_collection()
    lifecycle.run(lambda stop: serve(GatewaySettings(options), stop))


def _freeze_garbage_collection() -> None:
    """Keep the cyclic garbage collector from halting every stream: a full collection takes 50 to 90 ms.

    Modules make up most of what the collector scans, and they never become garbage. Each burst of commits allocates
    more than the usual threshold of 700 objects, and reference counting frees all of them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER)


if __name__ == "__main__":
    command_line.run(command_line.command(main), "draftmesh gateway")
