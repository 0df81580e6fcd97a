"""What drafters are told of a request: that it begins, what was decided, and that it ends."""

import socket

from services.verifier.drafters import worth
from services.verifier.engine import FIRST_LEAD, Engine, Gain
from services.verifier.generation import Generation
from services.verifier.sharing import PROBE_LEAD
from shared.wire.messages import Close, Commit, Hint, Open

Addressed = tuple[str, Hint]  # the drafter's name, and what it is told


def opening(generation: Generation, drafter: str, engine: Engine, verifier: str, device: str) -> Addressed:
    """The request begins, or begins for this drafter; `device` is the target's."""
    job = generation.job
    generation.sessions[drafter].begin()
    begun = Open(
        request_id=job.request_id,
        reply_to=verifier,
        epoch=generation.claim.epoch,
        eog=tuple(sorted(engine.eog)),
        n_vocab=engine.target.n_vocab,
        lead=PROBE_LEAD if engine.sharing.takes_turns(drafter) else FIRST_LEAD,
        committed=tuple(generation.context[len(job.prompt) :]),
        worth=worth(engine.drafters[drafter].card, socket.gethostname(), device),
    )
    return drafter, begun


def decided(gain: Gain, tokens: tuple[int, ...], engine: Engine, verifier: str, device: str) -> list[Addressed]:
    """A round decided these tokens; each of the request's drafters hears how far ahead it should be from there.

    One that was to wait until the prompt is read hears of the request now.
    """
    generation = gain.generation
    begun = [
        opening(generation, name, engine, verifier, device)
        for name, session in generation.sessions.items()
        if not session.told and engine.sharing.opens(generation, name)
    ]
    names = {name for name, _ in begun}
    return begun + [
        (
            name,
            Commit(
                request_id=generation.job.request_id,
                epoch=generation.claim.epoch,
                base=gain.base,
                tokens=tokens,
                lead=engine.lead(generation, name),
                want=session.want,
                worth=engine.worth(name),
            ),
        )
        for name, session in generation.sessions.items()
        if session.told and name not in names
    ]


def closing(generation: Generation, drafters: tuple[str, ...]) -> list[Addressed]:
    """The request ends for these drafters."""
    return [(name, Close(request_id=generation.job.request_id)) for name in drafters]
