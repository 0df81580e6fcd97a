"""The benchmark's own arithmetic, its yardstick and its client: numbers that others will quote."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from bench import measure, processes, raw, report, running, workload
from services.launcher.clients.streaming import AnswerError, AttributedToken, StreamedAnswer, stream
from services.launcher.fleet import cores, stack
from shared.law.sampling import Logits, draw, law
from shared.model.rows import Rows
from shared.model.target import Target
from shared.model.weights_read import BandwidthUse
from shared.wire.messages import Sampling

READING = BandwidthUse(weights=1000, bandwidth=100_000.0, threads=1)


def sample(
    configuration: str, speed: float, *, prompt: str = "chat", repetition: int = 0, **more: Any
) -> measure.Sample:
    fields: dict[str, Any] = {"temperature": 0.0, "tokens": (1, 2, 3), "first_token_s": 0.1, "statistics": {}}
    return measure.Sample(
        configuration=configuration, prompt=prompt, repetition=repetition, tokens_per_second=speed, **(fields | more)
    )


def only(measured: measure.Measured, configuration: str) -> report.ReportRow:
    return next(one for one in report.summaries(measured) if one.configuration == configuration)


def test_ratios_compare_the_same_prompt_and_repetition_so_that_drift_cancels() -> None:
    measured = measure.Measured(READING)
    for repetition, drift in enumerate((1.0, 0.5)):
        for prompt, cost in (("chat", 1.0), ("code", 2.0)):
            for name, speed in (("raw", 10.0), ("plain", 9.9), ("8-bit", 30.0)):
                measured.samples.append(sample(name, speed * drift / cost, prompt=prompt, repetition=repetition))
    assert only(measured, "plain").ratio_to_raw == pytest.approx(0.99)
    assert only(measured, "8-bit").ratio_to_plain == pytest.approx(30 / 9.9)
    speeds = only(measured, "plain").tokens_per_second
    assert speeds is not None
    assert asdict(speeds) == pytest.approx(
        {"mean": 9.9 * 0.75 * 0.75, "min": 9.9 / 4, "max": 9.9, "stdev": 9.9 * 0.3145764, "count": 4}, rel=1e-5
    )


def test_the_share_of_the_bandwidth_is_told_of_plain_decodes() -> None:
    measured = measure.Measured(READING)
    measured.samples += [sample(name, 50.0) for name in ("raw", "plain", "8-bit")]
    shares = [only(measured, name).bandwidth_share for name in ("raw", "plain", "8-bit")]
    assert shares == [pytest.approx(0.5), pytest.approx(0.5), None]
    assert report.as_json(measured)["reading"] == {"weights": 1000, "bandwidth": 100_000.0, "threads": 1}


def test_equal_answers_are_counted_against_plain_and_raw() -> None:
    measured = measure.Measured(READING)
    for repetition, tokens in enumerate([(1, 2, 3), (1, 2, 4)]):
        measured.samples.append(sample("raw", 1.0, repetition=repetition))
        measured.samples.append(sample("plain", 1.0, repetition=repetition, tokens=tokens))
        measured.samples.append(sample("lookup", 1.0, repetition=repetition, tokens=tokens))
    lookup = only(measured, "lookup")
    assert (lookup.equal_to_plain, lookup.equal_to_raw, lookup.compared) == (2, 1, 2)


def test_rates_are_taken_over_all_requests_and_absent_without_drafts() -> None:
    measured = measure.Measured(READING)
    few = {"drafted": 10, "accepted": 1, "rounds": 2}
    many = {"drafted": 90, "accepted": 79, "rounds": 1}
    measured.samples += [
        sample("8-bit", 1.0, statistics=few, spent={"decode_us": 80, "busy_us": 100, "cpu_us": 90}),
        sample("8-bit", 1.0, prompt="code", statistics=many, spent={"decode_us": 20, "busy_us": 25, "cpu_us": 25}),
        sample("8-bit", 1.0, temperature=1.0, spent={"decode_us": 950, "busy_us": 1000, "cpu_us": 990}),
        sample("plain", 1.0, statistics={"drafted": 0, "accepted": 0, "rounds": 3, "reason": "off"}),
    ]
    drafted, plain = only(measured, "8-bit"), only(measured, "plain")
    assert drafted.acceptance_rate == pytest.approx(0.8)
    assert drafted.tokens_per_round == pytest.approx(2.0)
    assert drafted.decode_share == pytest.approx(0.8)
    assert drafted.cpu_share == pytest.approx(0.92)
    assert (plain.acceptance_rate, plain.tokens_per_round, plain.decode_share) == (None, None, None)
    assert plain.reasons == {"off": 1}
    (remark,) = report.remarks(measured)  # none about plain, which was asked not to speculate
    assert "8-bit: the verifier got only 92% of its core" in remark


def test_the_worst_value_decides_whether_a_target_is_reached() -> None:
    measured = measure.Measured(READING)
    for temperature, gain in ((0.0, 3.5), (1.0, 2.9)):
        for name, speed, first in (("raw", 7.0, 0.100), ("plain", 6.9, 0.110), ("8-bit", 6.9 * gain, 0.118)):
            measured.samples.append(sample(name, speed, temperature=temperature, first_token_s=first))
    measured.memory = {"gateway": {"peak_rss": 120_000_000}, "lookup drafter": {"peak_rss": 100_000_000}}
    reached = {goal.name: (round(goal.got, 2), goal.reached) for goal in report.goals(measured)}
    assert reached == {
        "plain, of the raw loop's speed": (0.99, True),
        "8-bit draft, times plain": (2.9, False),
        "first token after the raw prefill, ms": (18.0, False),
        "gateway, peak MB": (120.0, True),
        "lookup drafter, peak MB": (100.0, False),
    }


def test_the_report_is_json_with_the_documented_keys_and_the_tables_draw() -> None:
    measured = measure.Measured(READING, samples=[sample("raw", 7.0), sample("plain", 6.9)])
    written = json.loads(json.dumps({**running.head({}), **report.as_json(measured)}))
    assert set(written) == {"created", "machine", "settings", "summaries", "reading", "memory", "targets", "samples"}
    assert report.__doc__ is not None
    for key in (*written, *written["summaries"][0]):
        assert key in report.__doc__ or key in ("configuration", "temperature")
    assert report.speed_table(measured).row_count == report.cause_table(measured).row_count == 2
    assert report.goal_table(measured).row_count == 2


class Toy:
    """A decoder whose logits depend on the last token and its position; counts what it was asked."""

    max_rows = 4
    vocabulary = 50

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.length = 0
        self._row: tuple[int, int] = (0, 0)

    def decode(self, rows: Rows) -> None:
        assert rows.positions == list(range(self.length, self.length + len(rows)))
        self.batches.append(len(rows))
        self.length += len(rows)
        self._row = (rows.tokens[-1], rows.positions[-1])
        self._asked = [index for index, output in enumerate(rows.outputs) if output]

    def logits(self, row: int) -> Logits:
        assert self._asked == [row]
        return np.random.default_rng(self._row).normal(0, 3, self.vocabulary).astype(np.float32)

    def truncate(self, sequence: int, length: int) -> None:
        assert sequence == 0
        self.length = length


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_raw_loop_draws_from_the_law_one_row_at_a_time(temperature: float) -> None:
    toy = Toy()
    request = {"prompt": [3, 1, 4, 1, 5, 9], "seed": 11, "temperature": temperature, "tokens": 12}
    answer = raw.answer(cast(Target, toy), frozenset(), request)
    sampling = Sampling(seed=11, temperature=temperature)
    expected: list[int] = []
    for offset in range(12):
        row = ([9, *expected][-1], 5 + offset)
        logits = np.random.default_rng(row).normal(0, 3, Toy.vocabulary).astype(np.float32)
        expected.append(draw(law(logits, sampling), 11, offset).token)
    assert answer["tokens"] == expected
    assert toy.batches == [4, 2] + [1] * 11
    assert min(answer["prefill_s"], answer["decode_s"]) > 0

    eog = frozenset(expected[3:4])
    ended = raw.answer(cast(Target, toy), eog, request)["tokens"]
    assert ended == expected[: expected.index(expected[3]) + 1]


def test_every_configuration_gets_the_same_requests_and_no_prefix_cache() -> None:
    first, again, second = workload.requests(0), workload.requests(0), workload.requests(1)
    assert first == again
    assert not {request.seed for request in first} & {request.seed for request in second}
    assert {(request.name, request.temperature) for request in first} == {
        (name, temperature) for name in workload.PROMPTS for temperature in workload.TEMPERATURES
    }
    plain, drafted = first[0].body(False), first[0].body("auto")
    assert plain | {"speculative": "auto"} == drafted
    assert plain["cache_prompt"] is False


@pytest.fixture
async def serve() -> Any:
    """A gateway that streams what it is told, and a session for it."""
    open_things: list[Any] = []
    seen: list[dict[str, Any]] = []

    async def start(lines: list[str], status: int = 200) -> tuple[ClientSession, list[dict[str, Any]]]:
        async def answer(http: web.Request) -> web.StreamResponse:
            seen.append(await http.json())
            response = web.StreamResponse(status=status)
            await response.prepare(http)
            for line in lines:
                await response.write(line.encode())
            return response

        application = web.Application()
        application.router.add_post("/v1/chat/completions", answer)
        server = TestServer(application)
        await server.start_server()
        session = ClientSession(str(server.make_url("/")))
        open_things.extend((session, server))
        return session, seen

    yield start
    for thing in open_things:
        await thing.close()


def event(**fields: Any) -> str:
    return f"data: {json.dumps(fields)}\n\n"


def chunk(text: str, tokens: list[int], finish: str | None = None, **more: Any) -> str:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish, "token_ids": tokens, **more}
    return event(choices=[choice])


async def test_a_stream_is_followed_to_its_end(serve: Any) -> None:
    trace = [{"token": 7, "text": "He", "source": ""}, {"token": 8, "text": "y", "source": "drafter-1"}]
    session, seen = await serve(
        [
            event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]),
            ": still here\n\n",
            chunk("Hey", [7, 8], trace=trace),
            chunk("!", [9]),
            chunk("", [], "stop"),
            event(choices=[], usage={"prompt_tokens": 5}, speculative={"drafted": 2, "accepted": 1}),
            "data: [DONE]\n\n",
        ]
    )
    guesses: list[AttributedToken] = []
    answer = await stream(session, {"messages": []}, guesses.extend)
    assert (answer.text, answer.tokens, answer.finish, answer.prompt_tokens) == ("Hey!", [7, 8, 9], "stop", 5)
    assert answer.statistics == {"drafted": 2, "accepted": 1}
    assert [(guess.text, guess.source) for guess in guesses] == [("He", ""), ("y", "drafter-1")]
    assert [count for _, count in answer.arrivals] == [2, 1]
    assert seen == [
        {"messages": [], "stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True}
    ]


@pytest.mark.parametrize(
    ("lines", "status", "message"),
    [
        ([event(error={"message": "no such model"})], 404, "HTTP 404.*no such model"),
        ([chunk("a", [1]), event(error={"message": "the verifier is gone"})], 200, "the verifier is gone"),
        ([chunk("a", [1])], 200, "without its last event"),
    ],
)
async def test_a_broken_stream_is_an_error(serve: Any, lines: list[str], status: int, message: str) -> None:
    session, _ = await serve(lines, status)
    with pytest.raises(AnswerError, match=message):
        await stream(session, {})


def test_decode_speed_leaves_out_the_first_chunk_and_what_came_before() -> None:
    answer = StreamedAnswer(started=10.0, arrivals=[(12.0, 3), (13.0, 4), (14.0, 6)])
    assert answer.first_token_s == 2.0
    assert answer.tokens_per_second == 5.0
    assert StreamedAnswer(started=0.0, arrivals=[(1.0, 5)]).tokens_per_second == 0.0


async def test_a_process_that_does_not_start_is_named_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(stack.StackError, match="the gateway ended"):
        async with stack.Stack(tmp_path / "none.gguf", engine_cores=(), side_cores=()):
            pass


def test_halves_share_the_cores_without_overlap_unless_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {4, 5, 6})
    assert cores.halves() == ([4], [5, 6])
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {4})
    assert cores.halves() == ([4], [4])


def test_a_process_sees_its_own_memory_and_cpu_time() -> None:
    own = processes.memory(os.getpid())
    assert 0 < own["pss"] <= own["rss"] <= own["peak_rss"]
    assert processes.memory(2**30) == {}
    assert processes.cpu_s(os.getpid()) > 0 == processes.cpu_s(2**30)
