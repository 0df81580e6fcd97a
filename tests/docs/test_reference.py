"""The generated pages are those that the code makes now."""

import pytest

from reference.command_lines import commands
from reference.pages import FOLDER, PAGES
from services.gateway.generation.draft_statistics import MEANINGS, DraftStatistics
from shared.settings.command_settings import PROGRAM


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_the_reference_is_up_to_date(name: str) -> None:
    file = FOLDER / name
    written = file.read_text() if file.exists() else ""
    assert written == PAGES[name](), f"docs/reference/{name} is out of date: run `make reference`"


def test_no_page_of_the_reference_is_left_over() -> None:
    assert {file.name for file in FOLDER.glob("*.md")} == set(PAGES)


def test_every_command_and_every_option_says_what_it_is_for() -> None:
    for name, parser in commands().items():
        silent = [
            parameter.opts for parameter in parser.params if not parameter.help and "--help" not in parameter.opts
        ]
        assert parser.help or name == PROGRAM, name
        assert not silent, name


def test_every_figure_of_an_answers_drafts_is_explained() -> None:
    assert DraftStatistics().report().keys() == MEANINGS.keys()
