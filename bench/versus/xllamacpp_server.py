"""Serves a model over HTTP with the `Server` of the wheel xllamacpp, under the Python that has it, until killed.

Imports nothing of draftmesh: it runs in the peer's own virtual environment.
"""

import argparse
import os
import threading


def main() -> None:
    """Load, listen on the loopback, and sleep; the server's own threads do the work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ctx", type=int, required=True, help="tokens of all slots together")
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1, help="of the target, and of the draft")
    parser.add_argument("--draft-model", default="")
    parser.add_argument("--draft-max", type=int, default=0)
    parser.add_argument("--p-min", type=float, default=0.0)
    parser.add_argument("--probabilistic", action="store_true")
    parser.add_argument("--ngram", choices=["", "ngram-mod", "ngram-simple"], default="")
    arguments = parser.parse_args()

    import xllamacpp

    kinds = xllamacpp.common_speculative_type
    parameters = xllamacpp.CommonParams()
    parameters.model.path = arguments.model
    parameters.port = arguments.port
    parameters.n_ctx = arguments.ctx
    parameters.n_parallel = arguments.slots
    parameters.cache_ram_mib = 0
    parameters.n_threads_http = 2
    for processor in (parameters.cpuparams, parameters.cpuparams_batch):
        processor.n_threads, processor.poll = arguments.threads, 0
    speculative = parameters.speculative
    if arguments.draft_model:
        draft = speculative.draft
        draft.mparams.path = arguments.draft_model
        draft.n_max = arguments.draft_max
        draft.p_min = arguments.p_min
        draft.probabilistic = arguments.probabilistic
        for processor in (draft.cpuparams, draft.cpuparams_batch):
            processor.n_threads, processor.poll = arguments.threads, 0
        speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
    elif arguments.ngram:
        speculative.types = [getattr(kinds, f"COMMON_SPECULATIVE_TYPE_{arguments.ngram.replace('-', '_').upper()}")]
    server = xllamacpp.Server(parameters)
    print(f"process {os.getpid()} listens at {server.listening_address}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
