"""The figures of `draftmesh bench`, with exact values: numbers that others will quote."""

import json
from typing import Any

import pytest
from rich.console import Console
from yarl import URL

from services.launcher.bench.acceptance import DraftCounts, pooled, read
from services.launcher.bench.plan import BenchSettings, Cell
from services.launcher.bench.report import BenchReport
from services.launcher.bench.samples import AnswerSample, Failure, Load, Measurements, TimedAnswer
from services.launcher.bench.servers import Server, ServerAddress
from services.launcher.bench.summary import bursts, comparisons, decode_speed, summaries
from services.launcher.bench.tables import tables
from services.launcher.bench.workloads import Workload

CHAT = Cell(workload=Workload.CHAT, temperature=0.0, concurrency=1)
CODE = Cell(workload=Workload.CODE, temperature=0.0, concurrency=1)


def reply(
    *arrivals: float, tokens: int = 0, acceptance: DraftCounts | None = None, counted: str = "usage"
) -> TimedAnswer:
    return TimedAnswer(
        prompt_tokens=10,
        tokens=tokens or len(arrivals),
        counted=counted,
        finish="length",
        arrivals_s=arrivals,
        total_s=arrivals[-1],
        acceptance=acceptance,
        fingerprint="build-1",
    )


def sample(server: str, answer: TimedAnswer, *, cell: Cell = CHAT, repetition: int = 0, index: int = 0) -> AnswerSample:
    return AnswerSample(
        server=server, cell=cell, repetition=repetition, index=index, step=0, prompt=0, seed=1, reply=answer
    )


def load(server: str, tokens: int, seconds: float, *, cell: Cell = CHAT, repetition: int = 0) -> Load:
    return Load(server=server, cell=cell, repetition=repetition, tokens=tokens, seconds=seconds)


# --- one answer ---


def test_decode_speed_leaves_out_the_first_token_and_the_time_before_it() -> None:
    assert decode_speed(reply(2.0, 3.0, 4.0, tokens=9)) == 4.0


@pytest.mark.parametrize("answer", [reply(1.0, tokens=9), reply(1.0, 2.0, tokens=1), reply(1.0, 1.0005, tokens=9)])
def test_an_answer_in_one_piece_has_no_decode_speed(answer: TimedAnswer) -> None:
    assert decode_speed(answer) is None


def test_events_within_a_millisecond_are_one_burst() -> None:
    assert bursts([1.0, 1.0004, 1.0008, 1.0016, 1.1, 1.2]) == [1.0, 1.0016, 1.1, 1.2]


# --- drafts ---


def test_our_rates_become_counts_and_pool_by_how_many_drafts_got_there() -> None:
    said = {"drafted": 30, "accepted": 12, "rounds": 10, "acceptance_per_offset": [0.8, 0.5], "reason": None}
    ours = read({"speculative": said})
    assert ours is not None
    assert ours.reached == pytest.approx((10.0, 8.0))
    assert ours.kept == pytest.approx((8.0, 4.0))
    other = DraftCounts(drafted=30, accepted=3, reached=(30.0,), kept=(3.0,))
    total = pooled([ours, other])
    assert total is not None
    assert total.by_offset == pytest.approx((11 / 40, 0.5))
    assert (total.drafted, total.accepted, total.rate) == (60, 15, 0.25)


def test_ours_without_an_accepted_draft() -> None:
    said = {"drafted": 8, "accepted": 0, "rounds": 3, "acceptance_per_offset": [0.0], "reason": None}
    ours = read({"speculative": said})
    assert ours is not None
    assert (ours.reached, ours.by_offset, ours.rate) == ((3.0,), (0.0,), 0.0)


def test_ours_says_why_nothing_was_drafted() -> None:
    said = {"drafted": 0, "accepted": 0, "rounds": 3, "acceptance_per_offset": [], "reason": "no drafter"}
    ours = read({"speculative": said})
    assert ours is not None
    assert (ours.rate, ours.by_offset, ours.reason) == (None, (), "no drafter")


def test_llama_server_reports_counts_only() -> None:
    assert read({"timings": {"predicted_n": 9, "draft_n": 8, "draft_n_accepted": 6}}) == DraftCounts(
        drafted=8, accepted=6
    )
    assert read({"timings": {"predicted_n": 9}}) is None


def test_vllm_reports_how_many_drafts_of_each_chain_were_accepted() -> None:
    said = {
        "num_draft_tokens": 3 * 4 + 2,
        "num_accepted_draft_tokens": 6,
        "acceptance_histogram_by_draft_length": {"3": [2, 0, 1, 1], "1": [1, 1]},
    }
    vllm = read({"choices": [], "metrics": {"speculative_decoding": said}})
    assert vllm is not None
    assert vllm.reached == (6.0, 2.0, 2.0)
    assert vllm.kept == (3.0, 2.0, 1.0)
    assert sum(vllm.kept) == vllm.accepted


@pytest.mark.parametrize(
    "event", [{}, {"speculative": "on"}, {"timings": 3}, {"metrics": {"speculative_decoding": []}}]
)
def test_what_is_not_understood_is_not_reported(event: dict[str, Any]) -> None:
    assert read(event) is None


def test_each_decode_of_the_target_adds_one_token_to_the_accepted() -> None:
    assert DraftCounts(drafted=90, accepted=75).tokens_per_round(100) == 4.0


# --- one cell ---


def test_a_summary_is_over_all_answers_of_the_cell() -> None:
    measured = Measurements(
        samples=[
            sample("a", reply(1.0, 2.0, tokens=11), repetition=0),
            sample("a", reply(3.0, 4.0, 6.0, tokens=61), repetition=1),
            sample("a", reply(9.0, 10.0, tokens=999), cell=CODE),
        ],
        failures=[Failure(server="a", cell=CHAT, repetition=2, message="gone")],
        loads=[load("a", 11, 2.0), load("a", 61, 10.0, repetition=1)],
    )
    [chat] = summaries(measured, [CHAT], ["a"])
    assert (chat.answers, chat.failed) == (2, 1)
    assert chat.tokens_per_second is not None
    assert chat.tokens_per_second.mean == 15.0
    assert (chat.tokens_per_second.min, chat.tokens_per_second.max) == (10.0, 20.0)
    assert chat.tokens_per_second.stdev == pytest.approx(50**0.5)
    assert chat.total_tokens_per_second is not None
    assert chat.total_tokens_per_second.mean == pytest.approx((5.5 + 6.1) / 2)
    assert chat.first_token_ms is not None
    assert (chat.first_token_ms.p50, chat.first_token_ms.p99) == pytest.approx((2000, 2980))
    assert chat.inter_token_ms is not None
    assert (chat.inter_token_ms.p50, chat.inter_token_ms.p99) == pytest.approx((1000, 1980))
    assert chat.time_per_token_ms is not None
    assert chat.time_per_token_ms.p50 == pytest.approx(75.0)
    assert (chat.acceptance, chat.tokens_per_round) == (None, None)


def test_a_cell_that_nobody_answered_has_failures_and_no_figures() -> None:
    measured = Measurements(failures=[Failure(server="a", cell=CHAT, repetition=0, message="gone")])
    [chat] = summaries(measured, [CHAT, CODE], ["a"])
    assert (chat.answers, chat.failed, chat.tokens_per_second, chat.first_token_ms) == (0, 1, None, None)


# --- peers ---


def test_ratios_pair_the_same_request_so_that_drift_cancels() -> None:
    measured = Measurements()
    for repetition, drift in enumerate((1.0, 4.0)):
        measured.samples += [
            sample("ours", reply(1.0 * drift, 1.0 * drift + drift, tokens=31), repetition=repetition),
            sample("peer", reply(2.0 * drift, 2.0 * drift + drift, tokens=11), repetition=repetition),
        ]
        measured.loads += [
            load("ours", 30, 1.0 * drift, repetition=repetition),
            load("peer", 20, 2.0 * drift, repetition=repetition),
        ]
    [chat] = comparisons(measured, [CHAT], ["ours", "peer"])
    assert chat.decode is not None
    assert (chat.decode.mean, chat.decode.min, chat.decode.max, chat.decode.pairs) == pytest.approx((3, 3, 3, 2))
    assert chat.total is not None
    assert chat.total.mean == pytest.approx(3)
    assert chat.first_token is not None
    assert chat.first_token.mean == pytest.approx(0.5)


def test_ratios_over_all_workloads_are_the_geometric_mean_of_their_pairs() -> None:
    measured = Measurements()
    for cell, tokens in ((CHAT, 21), (CODE, 81)):
        measured.samples += [
            sample("ours", reply(1.0, 2.0, tokens=tokens), cell=cell),
            sample("peer", reply(1.0, 2.0, tokens=11), cell=cell),
        ]
    chat, code, both = comparisons(measured, [CHAT, CODE], ["ours", "peer"])
    assert [one.cells for one in (chat, code, both)] == [(CHAT,), (CODE,), (CHAT, CODE)]
    assert both.decode is not None
    assert (both.decode.mean, both.decode.min, both.decode.max) == pytest.approx((4, 2, 8))


def test_an_answer_whose_twin_failed_is_compared_with_nothing() -> None:
    measured = Measurements(samples=[sample("ours", reply(1.0, 2.0, tokens=9))])
    assert comparisons(measured, [CHAT], ["ours", "peer"]) == []


# --- what is shown ---


def report(measured: Measurements, *names: str, **more: Any) -> BenchReport:
    servers = tuple(
        Server(
            address=ServerAddress(name=name, url=URL("http://user:secret@127.0.0.1:1"), key="top-secret"),
            model="m",
            software="fake/1",
        )
        for name in names
    )
    settings = BenchSettings(
        workloads=(Workload.CHAT, Workload.CODE),
        concurrencies=(1, 4),
        temperatures=(0.0,),
        tokens=8,
        repeat=1,
        seed=5,
    )
    fields: dict[str, Any] = {"own_truncation": (), "timeout_s": 9.0, "interrupted": False}
    return BenchReport(settings=settings, servers=servers, measured=measured, **(fields | more))


def both() -> Measurements:
    drafts = DraftCounts(drafted=9, accepted=6, reached=(4.0, 3.0), kept=(3.0, 3.0))
    four = Cell(workload=Workload.CHAT, temperature=0.0, concurrency=4)
    measured = Measurements()
    for cell in (CHAT, CODE, four):
        for name, speed, acceptance in (("ours", 30, drafts), ("peer", 10, None)):
            measured.samples.append(sample(name, reply(0.5, 1.5, tokens=speed + 1, acceptance=acceptance), cell=cell))
            measured.loads.append(load(name, speed, 1.0, cell=cell))
    return measured


def shown(one: BenchReport) -> str:
    console = Console(width=80, highlight=False)
    with console.capture() as captured:
        for table in tables(one):
            console.print(table)
    return captured.get()


def test_tables_fit_into_a_terminal_and_hold_speed_drafts_and_ratios() -> None:
    text = shown(report(both(), "127.0.0.1:7071", "ours", "peer"))
    assert "…" not in text
    assert "30.0" in text
    text = shown(report(both(), "ours", "peer"))
    assert "3.00 x" in text
    assert "67%" in text
    assert "chat T=0 ×4" in text


def test_servers_that_report_no_drafts_need_no_table_of_them() -> None:
    measured = Measurements(samples=[sample("peer", reply(0.5, 1.5))])
    assert "drafts" not in shown(report(measured, "peer"))


def test_remarks_say_what_the_figures_do_not() -> None:
    measured = both()
    measured.samples.append(sample("peer", reply(0.5, 1.5, counted="chunks"), repetition=1))
    measured.samples.append(
        sample(
            "ours", reply(0.5, 1.5, acceptance=DraftCounts(drafted=0, accepted=0, reason="no drafter")), repetition=1
        )
    )
    measured.failures.append(Failure(server="peer", cell=CHAT, repetition=1, message="HTTP 500: gone"))
    assert report(measured, "ours", "peer", own_truncation=("peer",), interrupted=True).remarks() == [
        "interrupted: these are the answers so far",
        "ours: 1 of 4 answers had no drafts: no drafter",
        "peer: 1 of 5 requests failed: HTTP 500: gone",
        "peer: reports no usage, so each event was counted as one token",
        "peer: takes no top_k and min_p, so its own defaults hold and may favour it",
    ]


def test_the_json_has_the_documented_keys_and_no_secret() -> None:
    measured = both()
    measured.failures.append(Failure(server="peer", cell=CHAT, repetition=1, message="HTTP 500: gone"))
    text = json.dumps(report(measured, "ours", "peer").as_json())
    assert "secret" not in text
    found = json.loads(text)
    assert set(found) == {
        *("created", "draftmesh", "machine", "settings", "servers", "summaries", "comparisons"),
        *("failures", "samples", "turns"),
    }
    cell = {"workload", "temperature", "concurrency"}
    assert set(found["summaries"][0]) == cell | {
        *("server", "answers", "failed", "tokens_per_second", "total_tokens_per_second", "first_token_ms"),
        *("time_per_token_ms", "inter_token_ms", "acceptance", "tokens_per_round"),
    }
    assert found["summaries"][0]["acceptance"] == {
        "drafted": 9,
        "accepted": 6,
        "rate": pytest.approx(2 / 3),
        "by_offset": [0.75, 1.0],
    }
    assert [one["workload"] for one in found["comparisons"]] == ["chat", "code", None, "chat"]
    assert found["comparisons"][0]["decode"] == {"mean": pytest.approx(3), "min": 3.0, "max": 3.0, "pairs": 1}
    assert found["samples"][0]["reply"]["arrivals_s"] == [0.5, 1.5]
    assert found["servers"][0]["fingerprint"] == "build-1"
    assert found["failures"] == [
        {"workload": "chat", "temperature": 0.0, "concurrency": 1, "server": "peer", "repetition": 1}
        | {"message": "HTTP 500: gone"}
    ]
