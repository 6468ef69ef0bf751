"""Expressions of parameters: their values against pint's, and what is refused."""

from __future__ import annotations

import pint
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hilserver.parameters import Parameters
from hilserver.units import quantity, to_si

VALUES = {"bore": "63 mm", "p": "250 bar", "Q": "40 l/min", "n": "1500 rpm", "k": 0.6, "T": "2.5e-3 s"}
PINT: pint.UnitRegistry[float] = pint.UnitRegistry()
PINT.define("turns_per_minute = 1 / minute")


def expression(depth: int = 3) -> st.SearchStrategy[str]:
    """Products, quotients and powers of the values: each has a unit that pint knows as well."""
    names = st.sampled_from([*VALUES, "2", "0.25"])
    return st.recursive(
        names,
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from("*/"), inner).map(lambda parts: "({}{}{})".format(*parts)),
            st.tuples(inner, st.sampled_from(["2", "-1"])).map(lambda parts: "({}**{})".format(*parts)),
            inner.map(lambda part: f"(-{part})"),
            inner.map(lambda part: f"(2*{part} - {part})"),
        ),
        max_leaves=4,
    )


@given(expression())
def test_arithmetic_is_that_of_pint(text: str) -> None:
    """The same value and unit, whatever is multiplied, divided, added or raised to a power."""
    names = {
        name: PINT.Quantity(str(value).replace("rpm", "turns_per_minute") if isinstance(value, str) else value)
        for name, value in VALUES.items()
    }
    wanted = eval(text, {}, names)  # an independent result: pint's own operators
    found = Parameters(VALUES).resolve("=" + text)
    wanted = wanted if isinstance(wanted, pint.Quantity) else PINT.Quantity(wanted)
    if abs(wanted.to_base_units().magnitude) > 1e19:
        return
    if isinstance(found, str):
        number, _, unit = found.partition(" ")
        amount = PINT.Quantity(float(number), unit)
    else:
        amount = PINT.Quantity(float(found))
    assert amount.dimensionality == wanted.dimensionality
    assert amount.to_base_units().magnitude == pytest.approx(wanted.to_base_units().magnitude, rel=1e-13)


def test_the_textbook_example() -> None:
    """Area and force of a piston of 63 mm at 250 bar: 31.17 cm^2, 77.93 kN."""
    values = Parameters({**VALUES, "A": "=pi/4*bore**2", "F": "=p*A", "d": "=sqrt(4*A/pi)"})
    assert to_si(values.value("A"), "m^2") == pytest.approx(31.172453e-4, rel=1e-7)
    assert quantity(values.value("F")).unit == "N"
    assert quantity(values.value("F")).value == pytest.approx(77.931133e3, rel=1e-7)
    assert to_si(values.value("d"), "m") == pytest.approx(0.063, rel=1e-14)


@pytest.mark.parametrize("value", ["63 mm", "supply", 3, 2.5, True, [1, "2 bar"], {"flow": "1 l/min"}, None])
def test_a_name_alone_stands_for_the_value_as_written(value: object) -> None:
    assert Parameters({"x": value}).resolve("= x ") == value


def test_the_result_is_that_of_the_value_written_out() -> None:
    """Twice 10 l/min is 20 l/min to the last bit: no conversion leaves a trace."""
    assert to_si(Parameters({"Q": "10 l/min"}).resolve("=2*Q"), "m^3/s") == to_si("20 l/min", "m^3/s")
    assert to_si(Parameters({"p": "35 bar"}).resolve("=3*p"), "Pa") == to_si("105 bar", "Pa")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("=bore + p", "a value in m can't be added to one in Pa"),
        ("=bore - k", "a value in no unit can't be subtracted from one in m"),
        ("=k**bore", "an exponent has no unit, this one is measured in m"),
        ("=(-k)**0.5", "-0.6 has no real power 0.5"),
        ("=bore/(k - k)", "it divides by zero"),
        ("=9**9**9**9", "its value is too large"),
        ("=10**30*bore", "its value is too large"),
        ("=x", 'there is no parameter "x". Allowed: Q, T'),
        ("=bor*2", "Did you mean bore?"),
        ("=name*2", 'parameter name: "supply" is not a number with a unit'),
        ("=a", "the parameters a -> b -> a depend on each other"),
        ("=5 mm", "can't be read"),
        ("=", "can't be read"),
        ("=" + "(" * 150, "can't be read"),
        ("=" + "1+" * 150 + "1", "at most 200 characters"),
        ("=bore.real", "is not allowed here"),
        ("=open('/etc/passwd')", "is not allowed here"),
        ("=__import__('os').system('true')", "is not allowed here"),
        ("=[bore for bore in (1, 2)]", "is not allowed here"),
        ("=bore if k else p", "is not allowed here"),
        ("=True*2", "is not allowed here"),
        ("=1j*2", "is not allowed here"),
        ("=sqrt(bore, 2)", "is not allowed here"),
        ("=sqrt", "there is no parameter"),
        ("=money*2", "is not used in hydraulics"),
    ],
)
def test_meaningless_expressions_are_refused(text: str, expected: str) -> None:
    table = {**VALUES, "name": "supply", "a": "=2*b", "b": "=a", "money": "3 mol"}
    with pytest.raises(ValueError, match=r".") as error:
        Parameters(table).resolve(text)
    assert expected in str(error.value)


def test_expressions_inside_of_lists_and_tables_are_replaced_but_not_in_descriptions() -> None:
    table = {"points": [["=k", "=2*k"]], "of": {"x": "=bore"}, "description": "=k"}
    assert Parameters(VALUES).resolve(table) == {
        "points": [[0.6, 1.2]],
        "of": {"x": "63 mm"},
        "description": "=k",
    }
