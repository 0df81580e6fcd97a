"""How far two vocabularies agree, and which drafters that lets in."""

from shared.model.vocabulary import compare

TEXTS = [f"token {number}".encode() for number in range(1000)]


def test_a_vocabulary_that_is_padded_further_agrees() -> None:
    found = compare(TEXTS, [*TEXTS, b"<pad>", b"<pad>"])
    assert found.can_draft
    assert str(found) == "agrees on all 1000 common tokens"


def test_renamed_special_tokens_are_let_in_and_told() -> None:
    found = compare(TEXTS, [b"<s>", b"</s>", *TEXTS[2:-8], *[b"<|reserved|>"] * 8])
    assert found.can_draft
    assert str(found) == "10 of 1000 common tokens differ, the first at 0, which is b'<s>', not b'token 0'"


def test_more_than_one_in_a_hundred_is_another_tokenizer() -> None:
    found = compare(TEXTS, [*TEXTS[:989], *[b"other"] * 11])
    assert not found.can_draft
    assert (found.common, found.different) == (1000, 11)


def test_a_shifted_vocabulary_is_another_tokenizer() -> None:
    assert not compare(TEXTS, TEXTS[1:]).can_draft


def test_a_long_token_is_shown_in_part() -> None:
    assert len(compare([b"a"], [b"b" * 1000]).first) < 100
