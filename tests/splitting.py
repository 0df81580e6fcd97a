"""Plays one answer into a dialect in any split into commits, with no server: what a client reads must not depend on it.

    @given(data=st.data())
    def test_…(lexicon: Lexicon, data: st.DataObject) -> None:
        call = ChatCall(b'{"stream": true, …}')
        one = answer(lexicon, text)
        assert joined(streamed(call, lexicon, data.draw(splits(one)))) == joined(streamed(call, lexicon, [one]))

Each dialect brings its own `joined`, which puts the stream's deltas together; the rest is here.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from services.gateway.errors import ApiError
from services.gateway.formats.parts import PlainParser
from services.gateway.generation.choice import Choice, Event
from services.gateway.generation.merged_events import MergedEvents
from services.gateway.generation.preparation import Prepared, Reading, jobs
from services.gateway.generation.usage import UsageTally
from services.gateway.http.dialect import Answer, Exchange, Identity, whole
from services.gateway.models.served_model import Lexicon, ServedModel
from shared.model.llama.model import Model
from shared.wire.messages import Chunk, Finish, TokenLogprob
from tests.toy_format import ToyFormat, ToyParser

SERVED = ServedModel(
    name="smol", fingerprint="f", vocabulary="v", n_ctx=4096, n_cells=4096, created=0, exactness="strict"
)
PROMPT = (1, 2, 3, 4, 5)
Commits = Sequence[Chunk]


def toy_lexicon(model: Model) -> Lexicon:
    """The model's vocabulary with the toy format."""
    lexicon = Lexicon(model)
    lexicon.format = ToyFormat()
    return lexicon


def answer(lexicon: Lexicon, text: str, finish: Finish = Finish.STOP, logprobs: bool = False) -> Chunk:
    """The text as one commit."""
    tokens = lexicon.document(text)
    given = tuple(TokenLogprob(-0.25, ((token, -0.25), (5, -2.5))) for token in tokens) if logprobs else ()
    return Chunk(tokens=tokens, logprobs=given, finish=finish)


@st.composite
def splits(draw: st.DrawFn, one: Chunk) -> list[Chunk]:
    """The same tokens in any number of commits, empty ones too."""
    length = len(one.tokens)
    bounds = [0, *sorted(draw(st.lists(st.integers(0, length), max_size=8))), length]
    parts = [(one.tokens[a:b], one.logprobs[a:b]) for a, b in itertools.pairwise(bounds)]
    last = len(parts) - 1
    return [
        Chunk(tokens=tokens, logprobs=logprobs, finish=one.finish if index == last else Finish.NONE)
        for index, (tokens, logprobs) in enumerate(parts)
    ]


def streamed(call: Exchange, lexicon: Lexicon, *choices: Commits) -> str:
    """The whole stream of these choices' commits, which take turns."""
    return _stream(call, lexicon, choices)[1]


def folded(call: Exchange, lexicon: Lexicon, read: Callable[[str], Sequence[Any]], *choices: Commits) -> object:
    """What the stream adds up to, once `read` has made its events of its frames."""
    answer, stream = _stream(call, lexicon, choices)
    return answer.whole(read(stream))


def _stream(call: Exchange, lexicon: Lexicon, choices: Sequence[Commits]) -> tuple[Answer[Any], str]:
    identity = _identity(call, lexicon)
    usage = UsageTally(identity.prepared)
    answer = call.answer(identity, usage)
    frames = [answer.frame(told) for told in answer.begin()]
    for event in _events(identity, choices):
        usage.saw(event)
        frames += [answer.frame(told) for told in answer.take(event)]
    frames += [answer.frame(told) for told in answer.end()]
    return call.answer(identity, usage), b"".join(frames).decode()  # an answer that knows nothing but the frames


def collected(call: Exchange, lexicon: Lexicon, *choices: Commits) -> dict[str, object]:
    """The whole answer as one object."""
    identity = _identity(call, lexicon)
    usage, merged = UsageTally(identity.prepared), MergedEvents(len(choices))
    for event in _events(identity, choices):
        usage.saw(event)
        merged.take(event)
    return whole(call.answer(identity, usage), merged.events())


def _identity(call: Exchange, lexicon: Lexicon) -> Identity:
    request = call.generation()
    made = [job for _ in request.prompts for job in jobs(request, SERVED, lexicon.n_tokens, PROMPT, 1000)]
    parser = ToyParser if request.converses else PlainParser
    reading = Reading(piece=lexicon.piece, stops=request.stops, parser=parser)
    prepared = Prepared(model=SERVED, lexicon=lexicon, jobs=tuple(made), choices=request.choices, reading=reading)
    return Identity(id="0" * 32, created=0, prepared=prepared)


def _events(identity: Identity, choices: Sequence[Commits]) -> list[Event]:
    assert len(choices) == len(identity.prepared.jobs)
    readers = [Choice(index, identity.prepared.reading) for index in range(len(choices))]
    events: list[Event] = []
    for chunks in itertools.zip_longest(*choices):
        for reader, chunk in zip(readers, chunks, strict=True):
            for event in reader.take(chunk) if chunk is not None and not reader.ended else ():
                assert not isinstance(event, ApiError), event
                events.append(event)
    return events
