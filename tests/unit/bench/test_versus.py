"""The comparison's own parts: arithmetic, command lines, the choice of opponents, and useless drafts."""

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from bench import running, tasks
from bench.pairs import PairName
from bench.random_drafter import RandomProposer
from bench.versus import as_typed, cells, completion, contest, edit, peers, ratios, results, setup
from bench.versus.peers import Binaries, PeerEngine, PeerSetting
from bench.versus.ratios import RatioSpread
from services.drafter.proposer import Opening
from services.launcher.clients.streaming import AnswerError, StreamedAnswer
from shared.errors import StartError
from shared.law import prefix
from shared.wire.messages import Sampling

BINARIES = Binaries(llama_server=Path("/peers/llama-server"), xllamacpp_python=Path("/peers/python"))


def test_a_ratio_pairs_prompts_and_repetitions_and_spreads_over_repetitions() -> None:
    ours = {("a", 0): 20.0, ("b", 0): 10.0, ("a", 1): 12.0, ("b", 1): 6.0, ("c", 1): 99.0}
    theirs = {("a", 0): 10.0, ("b", 0): 5.0, ("a", 1): 4.0, ("b", 1): 2.0}
    found = ratios.ratio(ours, theirs)
    assert (found.value, found.low, found.high) == pytest.approx((6**0.5, 2.0, 3.0))
    assert ratios.mean(theirs) == RatioSpread(value=5.25, low=3.0, high=7.5)


@pytest.mark.parametrize("theirs", [{}, {("b", 0): 1.0}, {("a", 0): 0.0}])
def test_no_ratio_is_made_up(theirs: dict[ratios.Key, float]) -> None:
    with pytest.raises(ValueError):
        ratios.ratio({("a", 0): 1.0}, theirs)


def test_the_best_has_the_highest_mean_and_the_first_of_equals_wins() -> None:
    assert ratios.best({"a": [1.0, 9.0], "b": [6.0], "c": [6.0], "d": []}) == "b"


def test_the_ideal_is_tokens_per_round_over_the_time_of_its_rows() -> None:
    rounds = ratios.Rounds(rounds=10, tokens=40, drafted=60)
    assert ratios.ideal_tokens_per_second(rounds, lambda rows: 100 + 10 * rows) == pytest.approx(1000 * 4 / 170)


def test_rounds_leave_out_the_first_token_whose_decode_is_the_prefill() -> None:
    runs = contest.Runs()
    statistics: Any = {"rounds": 5, "drafted": 12}
    for name in ("draftmesh", "other"):
        runs.all.append(
            contest.Run(
                name=name,
                key=("a", 0),
                tokens_per_second=1.0,
                first_token_s=0.1,
                tokens=(tuple(range(13)),),
                statistics=(statistics,),
            )
        )
    assert runs.rounds("draftmesh") == ratios.Rounds(rounds=4, tokens=12, drafted=12)
    assert runs.rounds("nobody") is None


def options(words: tuple[str, ...]) -> dict[str, str]:
    return {word: words[index + 1] for index, word in enumerate(words[:-1]) if word.startswith("--")}


def test_the_native_peer_gets_one_thread_each_and_its_draft() -> None:
    setting = PeerSetting(engine=PeerEngine.NATIVE, draft=Path("/d.gguf"), draft_max=4)
    words = peers.command(setting, BINARIES, target=Path("/t.gguf"), port=9, ctx=1024, slots=4)
    assert words[0] == "/peers/llama-server"
    assert (
        options(words).items()
        >= {
            "--model": "/t.gguf",
            "--threads": "1",
            "--spec-draft-threads": "1",
            "--poll": "0",
            "--spec-type": "draft-simple",
            "--spec-draft-model": "/d.gguf",
            "--spec-draft-n-max": "4",
            "--spec-draft-p-min": "0",
            "--ctx-size": "4096",
            "--parallel": "4",
        }.items()
    )
    plain = peers.command(PeerSetting(engine=PeerEngine.NATIVE), BINARIES, target=Path("/t.gguf"), port=9, ctx=1024)
    assert not any("spec" in word for word in plain)
    lookup = peers.command(
        PeerSetting(engine=PeerEngine.NATIVE, ngram="ngram-mod"), BINARIES, target=Path("/t.gguf"), port=9, ctx=1024
    )
    assert options(lookup)["--spec-type"] == "ngram-mod"


def test_on_one_machine_each_of_a_peers_models_gets_all_threads() -> None:
    setting = peers.draft_settings(PeerEngine.NATIVE, Path("/d.gguf"), threads=2)[-1]
    words = peers.command(setting, BINARIES, target=Path("/t.gguf"), port=9, ctx=1024)
    wanted = {"--threads": "2", "--threads-batch": "2", "--spec-draft-threads": "2", "--spec-draft-p-min": "0.9"}
    assert options(words).items() >= (wanted | {"--spec-draft-n-max": "16"}).items()
    newest = peers.draft_settings(PeerEngine.NEWEST, Path("/d.gguf"), threads=2)
    words = peers.command(newest[4], BINARIES, target=Path("/t.gguf"), port=9, ctx=1024)
    assert options(words).items() >= {"--threads": "2", "--p-min": "0.5", "--draft-max": "16"}.items()


@pytest.mark.parametrize("engine", list(PeerEngine))
def test_the_longest_draft_is_tried_with_every_least_probability(engine: PeerEngine) -> None:
    tried = {(setting.draft_max, setting.p_min) for setting in peers.draft_settings(engine, Path("/d"))}
    assert tried >= {(0, 0.0), (4, 0.0), (8, 0.0), (16, 0.0), (16, 0.5), (16, 0.75), (16, 0.9)}


def test_on_one_machine_ours_is_typed_without_a_word_on_threads() -> None:
    words = as_typed.command(Path("/t.gguf"), Path("/d.gguf"), port=9, redis_port=8, ctx=512)
    typed = {"--target-model": "/t.gguf", "--draft-model": "/d.gguf", "--port": "9", "--redis-port": "8"}
    assert options(words) == typed | {"--ctx": "512"}
    assert "--draft-model" not in as_typed.command(Path("/t.gguf"), None, port=9, redis_port=8, ctx=512)


def test_the_newest_peer_runs_our_script_under_its_own_python() -> None:
    setting = PeerSetting(engine=PeerEngine.NEWEST, draft=Path("/d.gguf"), draft_max=8, probabilistic=True)
    words = peers.command(setting, BINARIES, target=Path("/t.gguf"), port=9, ctx=512)
    assert words[0] == "/peers/python"
    assert Path(words[1]).is_file()
    assert "--probabilistic" in words
    assert options(words).items() >= {"--draft-model": "/d.gguf", "--draft-max": "8", "--ctx": "512"}.items()


def test_a_peer_that_is_not_here_is_named_with_its_option(tmp_path: Path) -> None:
    nobody = Binaries(llama_server=None, xllamacpp_python=None)
    for engine, option in ((PeerEngine.NATIVE, "--llama-server"), (PeerEngine.NEWEST, "--xllamacpp-python")):
        with pytest.raises(StartError, match=option):
            peers.command(PeerSetting(engine=engine), nobody, target=tmp_path, port=1, ctx=1)
    with pytest.raises(StartError, match=r"--llama-server .*nothing: is no program"):
        Binaries(llama_server=tmp_path / "nothing", xllamacpp_python=None).check()
    assert BINARIES.engines == [PeerEngine.NATIVE, PeerEngine.NEWEST]


def test_the_fastest_setting_of_each_engine_competes_unless_it_is_clearly_slower() -> None:
    plain, four, eight = peers.draft_settings(PeerEngine.NATIVE, Path("/d"))[::2][0:1] + [
        PeerSetting(engine=PeerEngine.NATIVE, draft=Path("/d"), draft_max=n) for n in (4, 8)
    ]
    newest = PeerSetting(engine=PeerEngine.NEWEST)
    assert setup.winners({plain: 7.0, four: 12.0, eight: 18.0, newest: 16.0}) == [eight, newest]
    assert setup.winners({plain: 7.0, four: 12.0, eight: 18.0, newest: 9.0}) == [eight]
    assert setup.winners({}) == []


def test_names_of_settings_tell_them_apart() -> None:
    settings = [
        setting
        for engine in PeerEngine
        for setting in (*peers.draft_settings(engine, Path("/d")), *peers.lookup_settings(engine)[1:])
    ]
    assert len({setting.name for setting in settings}) == len(settings)


def task(**changes: Any) -> tasks.Task:
    fields: dict[str, Any] = {
        "name": "a",
        "messages": ({"role": "user", "content": "hi"},),
        "prompt": (1, 2),
        "temperature": 1.0,
        "seed": 3,
        "tokens": 8,
    }
    return tasks.Task(**(fields | changes))


class Clockwork:
    """A contestant that takes a second for its first token and a tenth for each more."""

    def __init__(self, name: str, log: list[tuple[str, str, int]]) -> None:
        self.name = name
        self._log = log

    async def ask(self, task: tasks.Task) -> StreamedAnswer:
        self._log.append((self.name, task.name, task.seed))
        return StreamedAnswer(
            started=0.0, tokens=[5] * task.tokens, arrivals=[(1.0 + 0.1 * index, 1) for index in range(task.tokens)]
        )


async def test_contestants_alternate_and_odd_repetitions_go_backwards() -> None:
    log: list[tuple[str, str, int]] = []
    works = [(task(name="a"),), (task(name="b"),)]
    contestants = [Clockwork("x", log), Clockwork("y", log)]
    runs = await contest.compete(contestants, works, 2, lambda name: None)
    first = [("x", "a", 3), ("y", "a", 3), ("x", "b", 3), ("y", "b", 3)]
    assert log == [*first, ("y", "a", 1003), ("x", "a", 1003), ("y", "b", 1003), ("x", "b", 1003)]
    assert runs.speeds("x") == {(name, repetition): pytest.approx(10.0) for name in ("a", "b") for repetition in (0, 1)}


def test_a_few_works_per_repetition_take_turns_until_all_were_done() -> None:
    works = [(task(name=name),) for name in "abc"]
    names = [[work[0].name for work in contest.turns(works, repetition, each=2)] for repetition in range(3)]
    assert names == [["a", "b"], ["c", "a"], ["b", "c"]]
    assert contest.turns(works, 5, each=0) == works


async def test_several_requests_count_together_from_the_first_question_to_the_last_token() -> None:
    run = await contest.do(Clockwork("x", []), (task(name="a"), task(name="b")), 0)
    assert run.tokens_per_second == pytest.approx(16 / 1.7)
    assert run.key == ("a+b", 0)


async def test_an_answer_that_ended_at_once_is_no_figure_of_speed() -> None:
    runs = contest.Runs([await contest.do(Clockwork("x", []), (task(tokens=tokens),), tokens) for tokens in (3, 9)])
    assert list(runs.speeds("x")) == [("a", 9)]


async def serve(lines: list[str], status: int = 200) -> tuple[TestServer, list[dict[str, Any]]]:
    seen: list[dict[str, Any]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(await request.json())
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        for line in lines:
            await response.write(f"data: {line}\n\n".encode())
        return response

    application = web.Application()
    application.router.add_post("/completion", answer)
    application.router.add_post("/v1/chat/completions", answer)
    server = TestServer(application)
    await server.start_server()
    return server, seen


async def test_a_peers_answer_is_read_token_by_token_under_the_same_law() -> None:
    lines = [json.dumps({"content": "a", "tokens": [token], "stop": False}) for token in (4, 5, 6)]
    final = {"content": "", "tokens": [], "stop": True, "stop_type": "limit", "timings": {"prompt_n": 2, "cache_n": 7}}
    server, seen = await serve([*lines, json.dumps(final)])
    async with server, ClientSession(str(server.make_url("/"))) as http:
        answer = await completion.complete(http, task())
    assert (answer.tokens, answer.finish, answer.prompt_tokens, answer.cached_tokens) == ([4, 5, 6], "limit", 9, 7)
    [body] = seen
    assert body["prompt"] == [1, 2]
    assert (body["top_k"], body["top_p"], body["min_p"], body["cache_prompt"]) == (0, 1.0, 0.0, False)
    assert (body["temperature"], body["seed"], body["n_predict"]) == (1.0, 3, 8)


async def test_a_peers_chat_answer_is_read_piece_by_piece_with_its_prompt_cache() -> None:
    pieces = [{"choices": [{"delta": {"content": text}}]} for text in ("He", "llo")]
    last = {"choices": [{"delta": {}, "finish_reason": "length"}], "timings": {"prompt_n": 3, "cache_n": 40}}
    server, seen = await serve([*(json.dumps(piece) for piece in pieces), json.dumps(last), "[DONE]"])
    async with server, ClientSession(str(server.make_url("/"))) as http:
        answer = await completion.chat(http, task())
    assert (answer.text, len(answer.arrivals), answer.cached_tokens) == ("Hello", 2, 40)
    assert seen[0]["cache_prompt"] is True


@pytest.mark.parametrize(
    ("lines", "status", "reason"),
    [
        (['{"error": {"message": "no slot"}}'], 200, "no slot"),
        ([], 500, "HTTP 500"),
        (['{"content": "a", "tokens": [1], "stop": false}'], 200, "without its last event"),
    ],
)
async def test_a_peer_that_fails_is_an_error_and_no_figure(lines: list[str], status: int, reason: str) -> None:
    server, _ = await serve(lines, status)
    async with server, ClientSession(str(server.make_url("/"))) as http:
        with pytest.raises(AnswerError, match=reason):
            await completion.complete(http, task())


def test_only_runs_of_tokens_count_as_copied() -> None:
    prompt = list(range(20))
    assert edit.copied_share(prompt, [*range(4, 11), 99, 98, 97], run=6) == pytest.approx(0.7)
    assert edit.copied_share(prompt, [0, 1, 2, 9, 10, 11, 3, 4, 5], run=6) == 0.0
    assert edit.copied_share(prompt, []) == 0.0


def test_an_edit_asks_for_a_rename_of_a_field_that_its_file_has() -> None:
    for number in range(12):
        asked = edit.record(number)
        old, new = edit.instruction(asked).split("`")[1:4:2]
        assert f"    {old}: " in edit.source_file(asked)
        assert new not in edit.source_file(asked)
        compile(edit.source_file(asked), asked.name, "exec")


def test_no_two_repetitions_edit_the_same_file() -> None:
    assert len({edit.source_file(edit.record(number)) for number in range(40)}) == 40


def test_a_finding_is_reached_by_its_own_measure() -> None:
    half = RatioSpread(value=0.5, low=0.4, high=0.6)
    findings = [
        results.Finding(cell="c", what="w", ratio=half, wanted=wanted, at_most=at_most)
        for wanted, at_most in ((0.4, False), (0.6, False), (0.6, True), (0.4, True), (None, False))
    ]
    assert [finding.reached for finding in findings] == [True, False, True, False, None]
    assert results.finding_table("t", findings).row_count == 5


def test_the_audition_is_a_table_of_every_setting() -> None:
    table = results.audition_table({"T=0": {"plain": 2.5, "n=4": 6.0}, "T=1": {"plain": 2.4, "probabilistic": 4.0}})
    columns = [list(column.cells) for column in table.columns]
    assert columns == [["plain", "n=4", "probabilistic"], ["2.50", "6.00", "-"], ["2.40", "-", "4.00"]]


def test_the_file_holds_every_cell_that_is_done(tmp_path: Path) -> None:
    file = results.ResultFile(tmp_path / "results" / "versus.json", {"created": "now", "machine": {}, "settings": {}})
    one = results.Finding(cell="c", what="w", ratio=RatioSpread(value=2.0, low=2.0, high=2.0), wanted=1.5)
    file.add("a", results.CellResult(findings=[one]))
    file.add("b", results.CellResult(notes=["said"]))
    written = json.loads(file.path.read_text())
    assert set(written["cells"]) == {"a", "b"}
    assert written["cells"]["a"]["findings"][0]["reached"] is True
    assert results.__doc__ is not None
    for key in (*written, *written["cells"]["a"], *written["cells"]["a"]["findings"][0]):
        assert key in results.__doc__
    assert list(file.path.parent.iterdir()) == [file.path]


def test_cells_are_chosen_by_name_and_fit_into_the_time() -> None:
    widened, qwen = (cells.CELLS[name] for name in (PairName.WIDENED, PairName.QWEN))
    assert [cell.name for cell in running.chosen("--cell", ["turn", "8bit"], widened)] == ["8bit", "turn"]
    assert len(running.chosen("--cell", [], widened)) == 9
    with pytest.raises(StartError, match="--cell 9bit: must be one of 8bit, 4bit"):
        running.chosen("--cell", ["9bit"], widened)
    assert {cell.name for cell in (*widened, *qwen) if not cell.peers} == {"delay", "nopay", "no-gain"}
    against_peers = [cell for cell in qwen if cell.peers]
    assert sum(cell.fixed + 3 * cell.each for cell in against_peers) <= 20, "minutes of three repetitions"


def opening(name: str = "r", lead: int = 20) -> Opening:
    return Opening(
        request_id=name,
        prompt=(1, 2, 3),
        committed=(4,),
        sampling=Sampling(seed=1),
        eog=frozenset({0}),
        n_vocab=50,
        lead=lead,
    )


def test_random_guesses_hang_where_the_request_is_and_stop_at_the_lead() -> None:
    proposer = RandomProposer()
    proposer.open(opening())
    drafts = []
    while proposer.busy:
        drafts += proposer.step()
    assert [draft.base for draft in drafts] == [1, 9, 17]
    assert sum(len(draft.tokens) for draft in drafts) == 20
    tokens = [4]
    for draft in drafts:
        assert draft.prefix_hash == prefix.extend_all(prefix.EMPTY, [1, 2, 3, *tokens])
        assert all(0 <= token < 50 for token in draft.tokens)
        tokens += draft.tokens


def test_random_guesses_follow_commits_and_rest_when_told() -> None:
    proposer = RandomProposer()
    proposer.open(opening(lead=4))
    proposer.step()
    assert proposer.commit("r", 1, (60, 61), lead=4)
    assert [draft.base for draft in proposer.step()] == [3]
    assert not proposer.commit("r", 9, (60,), lead=4), "a gap is told"
    assert proposer.commit("r", 3, (62,), lead=0)
    assert not proposer.busy
    proposer.close("r")
    assert proposer.sessions == 0
    assert proposer.commit("r", 4, (1,), lead=4), "a commit for a request that is closed is nobody's loss"


def test_two_random_drafters_of_one_seed_guess_alike() -> None:
    pair = [RandomProposer(seed) for seed in (1, 1)]
    for proposer in pair:
        proposer.open(opening())
    assert pair[0].step() == pair[1].step()
