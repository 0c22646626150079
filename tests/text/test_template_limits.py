"""Templates that nobody has read: they end soon, whatever they say, with an error of the package.

The limits are made small here, so that the tests are quick; `test_real_limits` is for those of the package.
"""

from __future__ import annotations

import threading
import tracemalloc
from typing import Any

import pytest

from pyturbo.errors import ArgumentError, FormatError
from pyturbo.text import chat, template_budget
from pyturbo.text.chat_template import ChatTemplate
from pyturbo.text.special_texts import SpecialTexts

MESSAGES = [{"role": "user", "content": "Hello"}]
VALUES = "{% set ns = namespace(x='aaaaaaaaaaaaaaaa', y=[1], z=(1,)) %}"
NAMED = "{% set ns = namespace(x='a' * 90000) %}"

ENDLESS = [
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% for a in range(99999) %}{% for b in range(99999) if false %}{% endfor %}{% endfor %}",
    "{% for a in range(9999) recursive %}{{ loop(range(9999)) if loop.depth < 5 }}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% set x %}{% for i in range(99999) %}{% for j in range(999) %}{% endfor %}{% endfor %}{% endset %}",
    "{% filter trim %}{% for i in range(999) if range(9999) | map('abs') | sum %}{% endfor %}{% endfilter %}",
    "{% for i in range(9999) %}{{ range(99999) | map('abs') | sum }}{% endfor %}",
    "{% for i in range(9999) %}{{ -1 in range(99999) | map('abs') }}{% endfor %}",
    "{% set s = 'a' * 90000 %}{% for i in range(9999) %}{{ 'b' in s }}{% endfor %}",
    "{% set s = 'a' * 90000 %}{% for i in range(9999) %}{{ s.count('b') }}{% endfor %}",
    "{% set t = (1,) * 4000 %}{% for i in range(9999) %}{{ {t: 1} | length }}{% endfor %}",
    "{% set t = (1,) * 4000 %}{% for i in range(9999) %}{{ messages[0][t] }}{% endfor %}",
    "{% set t = (1,) * 4000 %}{% set u = (1,) * 4000 %}{% for i in range(9999) %}{{ t == u }}{% endfor %}",
    "{% set s = 'a' * 90000 %}{% set t = 'a' * 90000 %}{% for i in range(9999) %}{{ s == t }}{% endfor %}",
    "{% set s = 'a' * 90000 %}{% set t = s | safe %}{% for i in range(9999) %}{{ s == t }}{% endfor %}",
    "{{ ('a' * 90000).rfind('ab' + 'a' * 9000) }}",
    "{{ ('a' * 90000).rindex('ab' + 'a' * 9000) }}",
    "{{ ('a' * 90000).rsplit('ab' + 'a' * 9000) }}",
    "{{ ('a' * 90000).rsplit(sep='ab' + 'a' * 9000) }}",
    "{{ ('a' * 90000).rpartition('ab' + 'a' * 9000) }}",
    "{{ ('ba' * 90000).strip('b' * 9000 + 'a') }}",
    "{{ ('ba' * 90000).lstrip('b' * 9000 + 'a') }}",
    "{{ (('ba' * 90000) | safe).rstrip('b' * 9000 + 'a') }}",
    "{{ ('ba' * 90000) | trim('b' * 9000 + 'a') }}",
    "{{ range(4000) | map('string') | list | sort(attribute='0.' * 400 + '0') }}",
    "{{ range(4000) | map('string') | list | unique(attribute='0,' * 400 + '0') | list }}",
    "{{ range(4000) | map('string') | list | map(attribute='0.' * 400 + '0') | list }}",
]
LARGE = [
    "{{ 'a' * 3000000000 }}",
    "{{ 3000000000 * 'a' }}",
    "{{ [1] * 300000000 }}",
    "{{ 'a' | center(1000000000) }}",
    "{{ 'a'.center(1000000000) }}",
    "{{ 'a'.ljust(1000000000) }}",
    "{{ 'a'['rjust'](1000000000) }}",
    "{{ '1'.zfill(1000000000) }}",
    "{{ ('a' | safe).center(1000000000) }}",
    "{{ ('a' | escape).ljust(1000000000) }}",
    "{{ ('a' | safe) * 3000000000 }}",
    "{{ ('%999999999d' | safe) % 1 }}",
    "{{ ('{:>1000000000}' | safe).format(1) }}",
    "{% autoescape true %}{{ ('a' * 900000) ~ ('b' * 900000) }}{% endautoescape %}",
    "{{ ('a' | attr('center'))(1000000000) }}",
    "{{ '\t'.expandtabs(1000000000) }}",
    "{{ '%999999999d' % 1 }}",
    "{{ '%.999999999f' % 1 }}",
    "{{ '%999999999d' | format(1) }}",
    "{{ '{:>1000000000}'.format(1) }}",
    "{{ ('a' | attr('format'))('{:>1000000000}') ~ '{:>1000000000}'.format_map({}) }}",
    "{{ ['a'] | map('center', 1000000000) | list }}",
    "{{ 'a\nb' | indent(1000000000) }}",
    "{{ [1] | batch(1000000000, 0) | list }}",
    "{{ [1] | slice(1000000000) | list }}",
    "{{ range(9999) | list | tojson(separators=(',' * 10000, ':')) }}",
    "{{ range(9999) | list | tojson(indent=1000) }}",
    "{{ ' '.join(range(99999) | map('center', 1000)) }}",
    "{{ ('a ' * 400000).split() | length }}",
    "{{ ('a' * 900000) | list | length }}",
    "{% for i in range(99999) %}" + "x" * 500 + "{% endfor %}",
    "{% set x %}{% for i in range(9999) %}" + "x" * 500 + "{% endfor %}{% endset %}",
    VALUES + "{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    VALUES + "{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    VALUES + "{% for i in range(60) %}{% set ns.x = ns.x | replace('a', 'aa') %}{% endfor %}",
    VALUES + "{% for i in range(60) %}{% set ns.x = ns.x.replace('', 'aa') %}{% endfor %}",
    VALUES + "{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] | join %}{% endfor %}",
    VALUES + "{% for i in range(60) %}{% set ns.x = ns.x.join([ns.x, ns.x]) %}{% endfor %}",
    VALUES + "{% for i in range(60) %}{% set ns.x = '%s%s' % (ns.x, ns.x) %}{% endfor %}",
    VALUES + "{% for i in range(60) %}{% set ns.x = '{}{}'.format(ns.x, ns.x) %}{% endfor %}",
    VALUES + "{% for i in range(60) %}{% set ns.y = ns.y + ns.y %}{% endfor %}",
    VALUES + "{% for i in range(60) %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.y }}",
    VALUES + "{% for i in range(60) %}{% set ns.y = {'a': ns.y, 'b': ns.y} %}{% endfor %}{{ ns.y | tojson }}",
    VALUES + "{% for i in range(60) %}{% set ns.y = dict(a=ns.y, b=ns.y) %}{% endfor %}{{ ns.y == ns.y }}",
    VALUES + "{% for i in range(60) %}{% set ns.z = (ns.z, ns.z) %}{% endfor %}{{ {ns.z: 1} }}",
    VALUES + "{% for i in range(999) %}{% set ns.y = ns.y + ['a' * 9999] %}{% endfor %}",
    NAMED + "{{ ([ns] * 99) | join(attribute='x') }}",
    NAMED + "{{ ([ns] * 99) | sort(attribute='x') }}",
    NAMED + "{{ ([ns] * 99) | groupby('x') }}",
    NAMED + "{{ ([ns] * 99) | unique(false, 'x') | list }}",
    NAMED + "{{ ([ns] * 99) | min(attribute='x') }}",
    NAMED + "{% set m = ns.x | safe %}{{ ([m.split] * 99) | join }}",
    NAMED + "{% set m = ns.x | safe %}{{ '%s' * 99 % m.split }}",
    "{{ ('a ' * 90000) | title }}",
    "{{ ('ab ' * 90000) | wordcount }}",
    "{{ ('a' * 90000) | urlencode }}",
    "{{ ('ab' * 90000) | sort | length }}",
    "{{ ('ab' * 90000) | min }}",
    "{{ ('ab' * 90000) | safe | unique | first }}",
    "{{ ('ab' * 90000) | slice(2) | first }}",
]
REFUSED = {
    "{{ 9 ** 999999999 }}": "numbers of at most 4096 bits",
    "{{ 2 ** 4000 * 2 ** 4000 }}": "numbers of at most 4096 bits",
    "{{ '%*d' % (999999999, 1) }}": "widths written as numbers",
    "{{ '{:>{w}}'.format(1, w=1000000000) }}": "fields that are names or numbers",
    "{{ '{0.content}'.format(messages[0]) }}": "fields that are names or numbers",
    "{{ [1] | tojson(indent=1000000000) }}": "an indent of at most 1000",
    "{{ 1.5 | round(1000000000, 'ceil') }}": "at most 300 digits",
    "{{ ('9' * 100000) | int }}": "a number of at most 1000 characters",
    "{{ [[1]] | sum(start=[]) }}": "expected numbers",
    "{{ (1).to_bytes(1000000000, 'big') }}": "unsafe",
    "{{ 'a'.translate({97: 'a'}) }}": "unsafe",
    "{{ ('a' | safe).striptags() }}": "unsafe",
    "{{ strftime_now('%c' * 1000) }}": "at most 1000 characters, got 2000",
    "{{ ('aé' * 300000).encode('punycode').decode('punycode') }}": "unsafe",
    "{{ ('é' * 400000).encode('idna') }}": "unsafe",
    "{{ 'a'['encode']() }}": "unsafe",
    "{{ (('&#' ~ '9' * 90000) | safe).unescape() }}": "unsafe",
    "{{ {}.fromkeys([1]) }}": "unsafe",
    "{{ {}.keys().isdisjoint([1]) }}": "unsafe",
    "{{ [1] | sort(attribute='0.' * 600) }}": "an attribute of at most 1000 characters, got 1200",
    "{{ [1] | map(attribute='0.' * 600) }}": "an attribute of at most 1000 characters, got 1200",
    "{{ [1] | selectattr('0.' * 600) }}": "an attribute of at most 1000 characters, got 1200",
    "{{ lipsum(100000) }}": "undefined",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "recursion",
    "{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}": "recursion",
    VALUES + "{% for i in range(999) %}{% set ns.z = (ns.z,) %}{% endfor %}{{ {ns.z: 1} }}": "200 levels of",
}
BROKEN = {
    "{% for a in b %}" * 30 + "{% endfor %}" * 30: "not a template: too many statically nested blocks",
    "{% if a %}" * 110 + "{% endif %}" * 110: "at most 100 levels",
    "{{ " + "9" * 5000 + " }}": "(not a template: .*digits|numbers of at most 64 bits)",
    "{{ " + "9" * 50 + " }}": "numbers of at most 64 bits",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}": "not a template: .*recursion",
    "{{ 1" + " + 1" * 5000 + " }}": "(at most 100 levels|recursion)",
    "{{ 'a' | wordwrap(1) }}": "No filter named 'wordwrap'",
    "{{ a }}" * 11000: "at most 10000 parts",
    " " * 300_000: "at most 250000 characters, got 300000",
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_budget, "STEPS", 300_000)
    monkeypatch.setattr(template_budget, "CHARACTERS", 1_000_000)


def render(template: str, messages: Any = MESSAGES, **variables: Any) -> str:
    return chat.render(ChatTemplate(template, {}), SpecialTexts(()), messages, True, variables)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("template", ENDLESS)
def test_steps_are_counted(template: str) -> None:
    with pytest.raises(ArgumentError, match="chat: the template: expected at most 30.,... steps, got more"):
        render(template)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("template", LARGE)
def test_text_is_counted_before_it_is_made(template: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ArgumentError, match="the template: expected at most 1,0..,... characters"):
            render(template)
        assert tracemalloc.get_traced_memory()[1] < 60_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("template", REFUSED)
def test_what_cannot_be_bounded_is_refused(template: str) -> None:
    with pytest.raises(ArgumentError, match=f"chat: the template.*{REFUSED[template]}"):
        render(template)


@pytest.mark.parametrize("template", BROKEN)
def test_what_does_not_compile_is_a_format_error(template: str) -> None:
    with pytest.raises(FormatError, match=f"chat_template: .*{BROKEN[template]}"):
        render(template)


def test_colons_in_a_format_cost_no_more_than_other_text() -> None:
    assert render("{{ (':' * 300000).format() | length }}") == "300000"


def test_time_is_looked_at_while_a_dict_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hashes of these keys are all the same, so that the time grows with the square of their number."""
    monkeypatch.setattr(template_budget, "SECONDS", 0.2)
    keys = [(key * (2**61 - 1), 0) for key in range(30_000)]
    with pytest.raises(ArgumentError, match="expected at most 0.2 seconds"):
        render("{{ dict(keys) | length }}", keys=keys)


def test_real_limits() -> None:
    with pytest.raises(ArgumentError, match="expected at most 64,.* characters, got more"):
        render("{{ 'a' * 3000000000 }}")
    with pytest.raises(ArgumentError, match="expected at most 10,.* steps, got more"):
        render(ENDLESS[0])


def test_time_is_limited_in_any_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_budget, "SECONDS", 0.0)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            render(ENDLESS[0])
        except ArgumentError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [str(error) for error in errors] == ["chat: the template: expected at most 0 seconds, got more"]


@pytest.mark.usefixtures("small")
def test_each_rendering_has_its_own_budget() -> None:
    """One after the other, in several threads, and one within another."""
    template = ChatTemplate("{% for i in range(999) %}{{ i }}{% endfor %}{{ inner }}", {})

    class Inner:
        def __str__(self) -> str:
            return template.render(MESSAGES, True, {"inner": "!"})

    expected = "".join(map(str, range(999)))
    results = [template.render(MESSAGES, True, {"inner": "!"}) for _ in range(20)]
    threads = [
        threading.Thread(target=lambda: results.append(template.render(MESSAGES, True, {"inner": "!"})))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected + "!"] * 28
    assert template.render(MESSAGES, True, {"inner": Inner()}) == expected * 2 + "!"


@pytest.mark.usefixtures("small")
def test_limits_grow_with_the_messages() -> None:
    content = "word " * 500_000
    template = (
        "{% for m in messages %}{{ ('<' + m.content) | trim ~ '>' if 'x' not in m.content }}{% endfor %}"
    )
    assert render(template, [{"role": "user", "content": content}]) == f"<{content.strip()}>"
    many = [{"role": "user", "content": "x"}] * 5000
    assert (
        len(render("{% for m in messages %}{{ m.content + messages[-1].role }}{% endfor %}", many)) == 25000
    )


def test_what_a_template_says_in_an_error_is_cut() -> None:
    with pytest.raises(ArgumentError) as raised:
        render("{{ raise_exception('\\ud800' + 'a' * 1000000) }}")
    assert len(str(raised.value)) < 1100
    str(raised.value).encode("utf-8")


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ 'a,b'.split(',') | join('-') }}{{ 'abc'[::-1] }}{{ [1, 2, 3][1:] }}", "a-bcba[2, 3]"),
        ("{{ 1 < 2 < 3 }}{{ 3 > 2 > 2 }}{{ 'a' in 'abc' }}{{ 2 not in [1, 2] }}", "TrueFalseTrueFalse"),
        ("{{ '%s is %d' % ('x', 3) }}{{ '{} {y:>3}'.format(1, y=2) }}", "x is 31   2"),
        ("{{ {'a': [1, (2, 3)]} }}{{ 'x' ~ 1 ~ none ~ [1] }}", "{'a': [1, (2, 3)]}x1None[1]"),
        ("{% for a, b in [(1, 2)] %}{{ a }}{{ b }}{{ loop.length }}{{ loop.last }}{% endfor %}", "121True"),
        ("{% for x in [1, [2]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}", "12"),
        ("{{ [3, 1, 2] | sort | map('string') | list }}{{ [1, 2] | sum }}", "['1', '2', '3']3"),
        (
            "{{ 'ab' is eq 'ab' }}{{ 1 is in [1] }}{{ 'A' is upper }}{{ 2 ** 10 }}{{ 7 // 2 }}",
            "TrueTrueTrue10243",
        ),
        ("{{ 'a\nb' | indent(2) }}{{ 'a' | center(3) }}|{{ ['a', 'b', 'c'] | batch(2) | list }}", None),
        ("{% set ns = namespace(a=1) %}{% set ns.a = ns.a + 1 %}{{ ns.a }}{{ ns }}", "2<Namespace>"),
        ("{{ '--a--'.strip('-') }}{{ 'a.b.c'.rsplit('.', 1) }}{{ 'abab'.rfind('ab') }}", "a['a.b', 'c']2"),
        ("{{ dict([('a', 1)], b=2) }}{{ cycler([1], [2]).next() }}", "{'a': 1, 'b': 2}[1]"),
        ("{{ [{'a': 2}, {'a': 1}] | sort(attribute='a') | join(',', attribute='a') }}", "1,2"),
        ("{{ [{'a': {'b': 2}}, {}] | groupby('a.b', default=1) | map('first') | list }}", "[1, 2]"),
        ("{{ [1, {'a': 2}] | tojson(indent=2) }}", '[\n  1,\n  {\n    "a": 2\n  }\n]'),
        (
            "{% macro f(x) %}<{{ x }}{{ caller() if caller }}>{% endmacro %}"
            "{{ f(1) }}{% call f(2) %}!{% endcall %}",
            "<1><2!>",
        ),
    ],
)
def test_what_templates_usually_do_is_unchanged(template: str, text: str | None) -> None:
    assert render(template) == (text or "a\n  b a |[['a', 'b'], ['c']]")
