"""Long texts are tokenised in pieces, and nobody can tell."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.model import model_source, safe_cuts
from shared.model.llama.model import Model
from shared.model.safe_cuts import PIECE, CutMarks
from tests.examples import few


def pieces(text: str, *special: str) -> list[str]:
    return list(CutMarks(special, special).cut(text))


def test_a_short_text_is_one_piece() -> None:
    assert pieces("<|a|>" * 10, "<|a|>") == ["<|a|>" * 10]


def test_a_long_text_is_cut_behind_marks() -> None:
    text = "<|a|>x" * PIECE
    found = pieces(text, "<|a|>", "<|b|>")
    assert "".join(found) == text
    assert all(piece.endswith("<|a|>") for piece in found[:-1])
    assert max(map(len, found)) <= PIECE + 12


def test_a_text_without_marks_stays_whole() -> None:
    assert pieces("ab" * PIECE, "<|a|>") == ["ab" * PIECE]
    assert pieces("ab" * PIECE) == ["ab" * PIECE]


@pytest.mark.parametrize(
    ("mark", "rival"),
    [("<|a|>", "<|a|><|b|>"), ("<|a|>", "|>x"), ("<|a|>", "y<"), ("<|a|>", "a"), ("<|a|>", "z<|a|>z"), ("aba", "q")],
)
def test_nothing_is_cut_behind_a_mark_of_which_another_token_may_claim_a_part(mark: str, rival: str) -> None:
    assert pieces(mark * PIECE, mark, rival) == [mark * PIECE]


@given(
    parts=st.lists(
        st.sampled_from(
            ["<|im_end|>", "<|im_start|>", "<|im_", "<repo_name>", " ", "\n", "  a", "hello", "é", "🙂", "|>"]
        ),
        max_size=80,
    ),
    repeat=st.integers(1, 4),
    special=st.booleans(),
)
@settings(max_examples=few(300))
def test_the_tokens_are_those_of_the_whole_text(
    vocabulary_model: Model, parts: list[str], repeat: int, special: bool
) -> None:
    vocabulary = vocabulary_model.vocabulary
    text = "".join(parts) * repeat
    limit = safe_cuts.PIECE
    with pytest.MonkeyPatch.context() as patch:
        whole = vocabulary.tokenize(text, parse_special=special)  # shorter than a piece
        assert len(text) <= limit
        patch.setattr(safe_cuts, "PIECE", 16)
        patch.setattr("shared.model.llama.vocabulary.PIECE", 16)
        assert vocabulary.tokenize(text, parse_special=special) == whole


def test_dense_marks_take_time_linear_in_the_text(vocabulary_model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    tokenize = vocabulary_model.vocabulary._tokenize

    def counted(text: str, add_special: bool, parse_special: bool) -> list[int]:
        lengths.append(len(text))
        return tokenize(text, add_special, parse_special)

    monkeypatch.setattr(vocabulary_model.vocabulary, "_tokenize", counted)
    assert len(vocabulary_model.vocabulary.tokenize("<|im_end|>a" * 20_000)) == 40_000
    assert max(lengths) < 2 * PIECE


@pytest.fixture(scope="module")
def vocabulary_model() -> Model:
    return Model(model_source.resolve("default"), vocab_only=True)
