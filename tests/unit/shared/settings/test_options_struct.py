"""One declaration gives a command its options, a struct its values, and a child its command line."""

from dataclasses import dataclass, field
from typing import Annotated

import pytest
import typer
from typer.main import get_command

from services.launcher.settings.up_options import UpOptions
from shared.settings.drafter_options import DrafterOptions
from shared.settings.gateway_options import GatewayOptions
from shared.settings.options import Level, option
from shared.settings.options_struct import arguments, build, declarations, flat, values, words
from shared.settings.verifier_options import VerifierOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    power: Annotated[int, option("--power", help="Its power.", min=1)] = 3
    level_of_noise: Annotated[Level, option("--level-of-noise", help="How loud it is.")] = Level.INFO


@dataclass(frozen=True, slots=True, kw_only=True)
class Car:
    name: Annotated[str, option("--name", help="Its name.")] = "car"
    engine: Engine = field(default_factory=Engine)
    seat: Annotated[list[str], option("--seat", help="Its seats.")] = field(default_factory=lambda: ["driver"])
    fast: Annotated[bool, option("--fast", help="Go fast.")] = False


CHANGED = Car(name="a b", engine=Engine(power=7, level_of_noise=Level.DEBUG), seat=["x", "-y"], fast=True)


def parse(*given: str) -> Car:
    """The struct that a command gets."""

    def main(context: typer.Context, car: Car, wheels: Annotated[int, typer.Option("--wheels")] = 4) -> None:
        assert wheels == 4
        context.obj.append(car)

    app = typer.Typer(add_completion=False)
    app.command()(flat(main))
    found: list[Car] = []
    get_command(app)(list(given), standalone_mode=False, obj=found)
    return found[0]


def test_a_command_gets_the_struct_with_its_groups() -> None:
    assert parse() == Car()
    given = ("--name", "a b", "--power", "7", "--level-of-noise", "debug", "--seat", "x", "--seat", "-y", "--fast")
    assert parse(*given) == CHANGED


def test_an_option_has_its_twin_and_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTMESH_LEVEL_OF_NOISE", "warning")
    assert parse() == Car(engine=Engine(level_of_noise=Level.WARNING))
    with pytest.raises(Exception, match="greater than or equal to 1"):
        parse("--power", "0")


def test_a_child_reads_from_its_command_line_what_it_was_handed() -> None:
    assert arguments(Car()) == ()
    assert arguments(Car(engine=Engine(power=7))) == ("--power", "7")
    assert parse(*arguments(CHANGED)) == CHANGED


def test_a_flag_that_is_off_has_no_words() -> None:
    assert list(words("fast", False)) == []


def test_a_struct_is_made_of_its_values() -> None:
    assert list(values(CHANGED)) == list(declarations(Car)) == ["name", "power", "level_of_noise", "seat", "fast"]
    assert build(Car, values(CHANGED)) == CHANGED


@pytest.mark.parametrize("struct", [GatewayOptions, VerifierOptions, DrafterOptions, UpOptions])
def test_every_field_of_a_command_is_the_key_of_an_option_with_a_twin(struct: type) -> None:
    """`up` and `config show` derive an option's name and variable from its field."""

    def main(options: struct) -> None:  # type: ignore[valid-type]
        pass

    app = typer.Typer(add_completion=False)
    app.command()(flat(main))
    found = [one for one in get_command(app).params if one.name != "help"]
    assert [(one.opts, one.envvar) for one in found] == [
        ([f"--{key.replace('_', '-')}"], f"DRAFTMESH_{key.upper()}") for key in declarations(struct)
    ]
