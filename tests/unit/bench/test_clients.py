"""The stand-in model of `make clients`, and how its results are judged and written down."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.player import Player
from clients.results import BEGIN, END, NOT_TRIED, Result, Verdict, replaced, table
from clients.running import Done, run
from clients.script import GREETING, RESULT, SHELL, answer, call, say
from clients.trials import Task
from clients.trying import judge
from clients.verifier import TURN
from shared.model import model_source
from shared.model.llama.model import Model
from shared.model.rows import LlamaError, Rows

OFFERED = '{"name": "shell"}'
TASK = Task(command=lambda _: [], shows="yes", writes=("file", "new"))


def test_a_prompt_that_asks_for_nothing_is_greeted() -> None:
    assert answer("hi") == GREETING


def test_the_last_thing_to_say_is_said() -> None:
    text = "two lines\nhere"
    assert answer(f"{say('one')} {say(text)}") == text


def test_a_tool_is_called_if_it_is_offered() -> None:
    prompt = call("shell", command=SHELL, times=2)
    assert answer(prompt) == GREETING
    arguments = '{"command": "echo works-$((6*7))", "times": 2}'
    assert answer(OFFERED + prompt) == f'<tool_call>\n{{"name": "shell", "arguments": {arguments}}}\n</tool_call>'


def test_a_result_is_quoted_and_no_prompt_holds_it_before() -> None:
    prompt = OFFERED + call("shell", command=SHELL)
    assert RESULT not in prompt
    assert answer(f"{prompt} {RESULT}") == f"The tool said: {RESULT}"


@pytest.fixture(scope="module")
def vocabulary_only() -> Iterator[Model]:
    model = Model(model_source.resolve("default"), vocab_only=True)
    yield model
    model.close()


def played(model: Model, prompt: str, said: str = "") -> tuple[Player, int]:
    """The player after a prompt and part of an answer, and the token that comes next."""
    player = Player(model.vocabulary, answer, TURN, n_ctx=4096, sequences=2)
    tokens = model.vocabulary.tokenize(prompt + TURN) + model.vocabulary.tokenize(said)
    rows = Rows()
    last = [rows.add(token, position, (1,), True) for position, token in enumerate(tokens)][-1]
    player.decode(rows)
    return player, int(player.logits(last).argmax())


def test_the_player_says_the_answer_token_by_token_and_ends(vocabulary_only: Model) -> None:
    vocabulary = vocabulary_only.vocabulary
    prompt = f"<|im_start|>user\n{say('Hello there')}<|im_end|>\n"
    player, token = played(vocabulary_only, prompt)
    position = len(vocabulary.tokenize(prompt + TURN))
    said = b""
    while token not in vocabulary.eog:
        said += vocabulary.piece(token)
        rows = Rows()
        row = rows.add(token, position, (1,), True)
        player.decode(rows)
        token = int(player.logits(row).argmax())
        position += 1
    assert said == b"Hello there"


def test_an_answer_that_was_led_away_ends(vocabulary_only: Model) -> None:
    _, token = played(vocabulary_only, say("Hello there"), "Good")
    assert token in vocabulary_only.vocabulary.eog


def test_the_player_refuses_gaps_and_changes_nothing(vocabulary_only: Model) -> None:
    player, token = played(vocabulary_only, "hi")
    last = len(vocabulary_only.vocabulary.tokenize("hi" + TURN)) - 1
    rows = Rows()
    rows.add(5, 1000, (1,), True)
    with pytest.raises(LlamaError):
        player.decode(rows)
    assert int(player.logits(last).argmax()) == token


@pytest.mark.parametrize(
    ("done", "content", "verdict"),
    [
        (Done(0, "say yes", "", 1.0), "new", Verdict(True)),
        (Done(None, "say yes", "", 1.0), "new", Verdict(False, "not finished after 9 s")),
        (Done(1, "yes", "note\nError: bad\nbye", 1.0), "new", Verdict(False, "exit status 1: Error: bad")),
        (Done(0, "no", "", 1.0), "new", Verdict(False, "the answer is missing: no")),
        (Done(0, "", "", 1.0), "new", Verdict(False, "the answer is missing: it said nothing")),
        (Done(0, "yes", "", 1.0), "old", Verdict(False, "file is not as it should be")),
    ],
)
def test_a_task_passes_by_what_the_client_shows_and_writes(
    done: Done, content: str, verdict: Verdict, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text(content)
    assert judge(TASK, done, tmp_path, 9) == verdict


async def test_a_program_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo begun; sleep 60 & wait"]
    done = await run(command, environment={"PATH": "/usr/bin:/bin"}, folder=tmp_path, timeout_s=0.3)
    assert (done.status, done.output) == (None, "begun\n")
    assert done.seconds < 30


RESULTS = [
    Result(name="A", version="1", api="/a", text=Verdict(True), tools=NOT_TRIED, real=NOT_TRIED, opening=12_345),
    Result(name="B", version="", api="/b", text=Verdict(False, "a | b\nc"), tools=NOT_TRIED, real=NOT_TRIED, opening=0),
]


def test_the_table_has_a_row_for_each_client() -> None:
    lines = table(RESULTS, "2030-01-02", "Linux").splitlines()
    assert lines[0] == "Of 2030-01-02, Linux:"
    assert lines[-2] == "| A | 1 | `/a` | yes | – | – | 12,345 |  |"
    assert lines[-1] == "| B |  | `/b` | **no**: a \\| b c | – | – | – |  |"
    assert [result.failed for result in RESULTS] == [False, True]


def test_new_results_replace_the_old_ones_and_nothing_else() -> None:
    document = replaced(f"before\n{BEGIN}\nold\n{END}\nafter\n", "first\n")
    assert document == replaced(replaced(document, "second\n"), "first\n")
    assert document == f"before\n{BEGIN}\n\nfirst\n\n{END}\nafter\n"


def test_a_document_without_a_place_is_an_error() -> None:
    with pytest.raises(ValueError, match="no place"):
        replaced("text", "results")
