"""Server-sent events and the draft statistics that ride on them."""

import json

import pytest

from services.gateway.generation.draft_statistics import DraftStatistics
from services.gateway.http.sse import DONE, frame
from shared.wire.messages import Chunk


def test_a_frame_is_one_line_of_json() -> None:
    data = frame({"text": "a\nb 😀\u2028"})
    assert data.startswith(b"data: {")
    assert data.endswith(b"}\n\n")
    assert data.count(b"\n") == 2
    assert json.loads(data[6:]) == {"text": "a\nb 😀\u2028"}


def test_the_end_mark() -> None:
    assert DONE == b"data: [DONE]\n\n"


def statistics(*chunks: Chunk) -> DraftStatistics:
    total = DraftStatistics()
    for chunk in chunks:
        total.add(chunk)
    return total


def test_a_refusal_verifies_its_own_offset_and_none_behind_it() -> None:
    report = statistics(
        Chunk(tokens=(1, 2), drafted=4, accepted=1, tried=2, sources=("a", "")),
        Chunk(tokens=(1, 2, 3), drafted=2, accepted=2, tried=2, sources=("a", "b", "")),
        Chunk(tokens=(1,), drafted=0, accepted=0, reason="no drafter"),
    ).report()
    assert report["acceptance_per_offset"] == [1.0, 0.5]
    assert (report["drafted"], report["accepted"], report["rounds"]) == (6, 3, 3)
    assert (report["tokens_per_round"], report["acceptance_rate"]) == (2.0, 0.5)
    assert report["by_source"] == {"a": 2, "b": 1}
    assert report["reason"] is None


def test_without_drafts_the_commonest_reason_is_given() -> None:
    one, two = Chunk(tokens=(1,), reason="no drafter"), Chunk(tokens=(1,), reason="does not pay")
    assert statistics(one, two, two).report()["reason"] == "does not pay"


def test_nothing_at_all_has_no_rates() -> None:
    report = statistics(Chunk(tokens=())).report()
    assert (report["rounds"], report["tokens_per_round"], report["acceptance_rate"]) == (0, 0.0, 0.0)


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_merging_is_adding(cut: int) -> None:
    chunks = [Chunk(tokens=(1,) * (n + 1), drafted=3, accepted=n, tried=min(n + 1, 3)) for n in (0, 3, 1)]
    merged = statistics(*chunks[:cut])
    merged.merge(statistics(*chunks[cut:]))
    assert merged.report() == statistics(*chunks).report()
