"""A hostile chat template ends soon and small; an honest one never notices that it is watched."""

import time
from typing import Any

import pytest

from services.gateway.prompts import sandbox
from services.gateway.prompts.template import ChatTemplate, TemplateError

MESSAGES = [{"role": "user", "content": f"line {index}\n\tx"} for index in range(400)]


def render(source: str, messages: Any = MESSAGES) -> str:
    return ChatTemplate(source).render(messages)


NEST = "{% for a in messages %}{% for b in messages %}{% for c in messages %}{% for d in messages %}"
ENDS = "{% endfor %}" * 4


@pytest.mark.parametrize(
    "source",
    [
        NEST + ENDS,
        NEST + "x" + ENDS,
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% for i in range(99) %}{{ f(n) }}{% endfor %}{% endmacro %}{{ f(1) }}",
        "{% set ns = namespace(n=0) %}" + NEST + "{% set ns.n = ns.n + 1 %}" + ENDS,
        "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
        "{% for x in range(99999) if range(99999)|sum < 0 %}{% endfor %}",
    ],
)
def test_what_never_ends_is_ended(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "TIME_S", 0.05)
    started = time.perf_counter()
    with pytest.raises(TemplateError, match=r"takes too long|maximum recursion|cannot render"):
        render(source)
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize(
    "expression",
    [
        "'x' * 10**9",
        "10**9 * 'x'",
        "[0] * 10**9",
        "'x' * 99999 * 99999",
        "10 ** 99999",
        "9 ** 99999999",
        "'%1000000000d' % 1",
        "'%*d' % (1000000000, 1)",
        "'%1000000000d' | format(1)",
        "'{:1000000000}'.format(1)",
        "'{:{}}'.format(1, 1000000000)",
        "'x' | center(1000000000)",
        "'x'.ljust(1000000000)",
        "'x'.zfill(1000000000)",
        "'\\t'.expandtabs(1000000000)",
        "('\\t' * 99999).expandtabs(99999)",
        "('x\\n' * 99999) | indent(99999)",
        "('x\\n' * 99999) | indent('x' * 99999)",
        "('x' * 99999).replace('x', 'y' * 99999)",
        "('x' * 99999) | replace('x', 'y' * 99999)",
        "range(99999) | list | join('x' * 99999)",
        "('x' * 99999).join(['a'] * 99999)",
        "range(10**9)",
        "messages | batch(10**9, 0) | list",
        "messages | slice(10**9) | list",
        "lipsum(10**9)",
        "'x' | truncate(10**18)",
        "messages | tojson(indent=10**9)",
    ],
)
def test_what_makes_much_from_little_is_refused_before_it_is_made(expression: str) -> None:
    started = time.perf_counter()
    with pytest.raises(TemplateError):
        render("{{ " + expression + " }}")
    assert time.perf_counter() - started < 2


@pytest.mark.parametrize("join", ["ns.x + ns.x", "ns.x ~ ns.x", "ns.x ~ '' ~ ns.x", "[ns.x, ns.x] | join"])
def test_doubling_stops(join: str) -> None:
    source = "{% set ns = namespace(x='x') %}{% for i in range(64) %}{% set ns.x = " + join + " %}{% endfor %}"
    with pytest.raises(TemplateError, match="too much"):
        render(source)


def test_what_is_rendered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "CHARACTERS", 10_000)
    with pytest.raises(TemplateError, match="too much text"):
        render("{% for i in range(1000) %}hello world{% endfor %}")


@pytest.mark.parametrize(
    "expression",
    [
        "''.__class__.__mro__[1].__subclasses__()",
        "self.__init__.__globals__",
        "cycler.__init__.__globals__",
        "range.__self__",
        "messages.append({})",
        "messages[0].update(role='x')",
        "('x'|attr('__class__'))",
        "joiner.__init__.__globals__.__builtins__",
        "'{0.__class__}'.format(1)",
        "'{0.__class__.__mro__}' | format(1)",
        "raise_exception.__globals__",
        "strftime_now.__closure__",
    ],
)
def test_python_s_insides_stay_out_of_reach(expression: str) -> None:
    try:
        text = render("{{ " + expression + " }}", [{"role": "user", "content": "x"}])
    except TemplateError:
        return
    assert not any(word in text for word in ("class", "object", "function", "builtin", "module"))


def test_an_honest_template_does_not_notice() -> None:
    source = (
        "{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ '!' if loop.last }}"
        " {{ loop.previtem.role if not loop.first }}"
        "{{ m.content | trim | replace('line', 'row') | indent(2) }} {{ 'a' ~ 1 ~ none }} {{ '%02d' % 7 }}"
        " {{ '%s-%s' | format('x', 2) }} {{ '{:>4}'.format(1) }} {{ '-' * 3 }} {{ ['a', 'b'] | join(', ') }}\n"
        "{% else %}none{% endfor %}"
    )
    text = render(source, [{"role": "user", "content": " line\nx "}, {"role": "assistant", "content": "y"}])
    assert text == ("1/2 row\n  x a1None 07 x-2    1 --- a, b\n2/2! usery a1None 07 x-2    1 --- a, b\n")
    assert render(source, []) == "none"
    nested = "{% for m in messages recursive %}{{ m.x }}{% if m.inner %}({{ loop(m.inner) }}){% endif %}{% endfor %}"
    assert render(nested, [{"x": 1, "inner": [{"x": 2}]}, {"x": 3}]) == "1(2)3"


@pytest.mark.parametrize(
    "source", ["{% for a in b %}" * 100 + "{% endfor %}" * 100, "{{ " + "(" * 5000 + ")" * 5000 + " }}"]
)
def test_what_cannot_be_compiled_is_a_refusal(source: str) -> None:
    with pytest.raises(TemplateError, match="does not compile"):
        ChatTemplate(source)
