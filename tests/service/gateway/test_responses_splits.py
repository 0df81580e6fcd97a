"""What a client of the Responses dialect reads does not depend on how an answer was cut into commits."""

from collections import defaultdict
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.dialects.responses.exchange import ResponsesExchange
from shared.model.llama.model import Model
from shared.wire.messages import Finish
from tests.examples import few
from tests.service.gateway.responses_events import events, official
from tests.splitting import answer, collected, splits, streamed, toy_lexicon

ANSWER = st.lists(
    st.sampled_from(["<think>", "</think>", "<call weather>", "</call>", '{"a": 1}', "é 😀", "Hello <", " there"]),
    max_size=8,
).map("".join)
ASKED = b'{"input": "Hi", "stream": true, "seed": 1, "include": ["message.output_text.logprobs"]}'


def masked(response: dict[str, Any]) -> dict[str, Any]:
    """Without what may differ: how many rounds it took, and the random ids of calls in the order of their making."""
    output = [{name: value for name, value in item.items() if name != "call_id"} for item in response["output"]]
    return {**response, "output": output, "speculative": None}


def joined(found: list[dict[str, Any]]) -> dict[tuple[str, str], str]:
    """Every item's deltas put together."""
    texts: defaultdict[tuple[str, str], str] = defaultdict(str)
    for event in found:
        if event["type"].endswith(".delta"):
            texts[event["item_id"], event["type"]] += event["delta"]
    return dict(texts)


@settings(max_examples=few(40))
@given(data=st.data(), text=ANSWER, finish=st.sampled_from([Finish.STOP, Finish.LENGTH]))
def test_any_split_gives_the_same_answer(model: Model, data: st.DataObject, text: str, finish: Finish) -> None:
    lexicon, call = toy_lexicon(model), ResponsesExchange(ASKED)
    one = answer(lexicon, text, finish, logprobs=True)
    whole = collected(call, lexicon, [one])
    found = events(streamed(call, lexicon, data.draw(splits(one))))
    final = found[-1]["response"]
    assert masked(final) == masked(whole)
    assert joined(found) == joined(events(streamed(call, lexicon, [one])))
    official(final)
    for item in final["output"]:
        if item["type"] == "message":
            [part] = item["content"]
            # In order, though marks around nothing (an empty thought) may come between.
            given = iter(b"".join(bytes(entry["bytes"]) for entry in part["logprobs"]))
            assert all(byte in given for byte in part["text"].encode())
