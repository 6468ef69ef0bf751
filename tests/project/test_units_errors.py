"""Units at the edge of the configuration, and the words in which errors are told."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hilserver import units
from hilserver.errors import ConfigurationError, Problem, did_you_mean, dotted, problems_of, shown
from hilserver.units import (
    SI_UNITS,
    AnyQuantity,
    Flow,
    Number,
    Pressure,
    Quantity,
    Time,
    from_si,
    quantity,
    quantity_per_second,
    registries,
    to_si,
)
from hilserver.units.spellings import COMMON_UNITS

# --- units -----------------------------------------------------------------------------------------------------------


PAIRS = (
    ("bar", "Pa"),
    ("Bar", "Pa"),
    ("l/min", "m^3/s"),
    ("cm³/U", "m^3"),
    ("min⁻¹", "1/s"),
    ("rad/s", "1/s"),
    ("rev", "rad"),
    ("rpm", "rad/s"),
    ("l/(min*bar)", "m^3/(s*Pa)"),
    ("%", ""),
    ("mm", "m"),
    ("K", "K"),
    ("degC", "K"),
    ("psi", "Pa"),
)


@pytest.mark.parametrize("pair", PAIRS)
def test_factors_of_common_units_give_the_same_bits(pair: tuple[str, str]) -> None:
    """As the conversion of the whole amount, of which they are known for the unit."""
    for number in ("0", "1", "-0.3", "7.1e-5", "123456.789012345", "1e14"):
        text = f"{number} {pair[0]}"
        assert to_si(text, pair[1]).hex() == units._converted(text, pair[1]).hex()


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        # definitions: 1 bar = 1e5 Pa, 1 l = 1e-3 m³, 1 min = 60 s, 1 psi = 6894.757 Pa (NIST SP 811: 6.894 757 E+03)
        ("35 bar", "Pa", 35e5),
        ("-0.2 bar", "Pa", -2e4),
        ("36 l/min", "m^3/s", 6e-4),
        ("36 l / min", "m^3/s", 6e-4),
        ("1e5 Pa", "Pa", 1e5),
        ("1000 psi", "Pa", 6.894757e6),
        ("20 ms", "s", 0.02),
        ("30 Hz", "1/s", 30.0),
        ("1500 rpm", "1/s", 25.0),
        ("28 cm^3/rev", "m^3", 28e-6),
        ("28 cm³", "m^3", 28e-6),
        ("0.1 l/min/bar", "m^3/(s*Pa)", 0.1e-3 / 60 / 1e5),
        ("0.1 l/(min*bar)", "m^3/(s*Pa)", 0.1e-3 / 60 / 1e5),
        ("2e5 Pa^0.5", "Pa^0.5", 2e5),
        ("2e5 N*s/m", "N*s/m", 2e5),
        ("2e5 N·s/m", "N*s/m", 2e5),
        ("90 deg", "rad", 1.5707963267949),
        ("20 degC", "K", 293.15),
        ("5 %", "", 0.05),
        ("5%", "", 0.05),
        ("0.5", "", 0.5),
        # NIST SP 811, appendix B: gal/min 6.309 020 E-05, in 2.54 E-02, lbf 4.448 222; 1 cSt = 1 mm²/s
        ("10 gpm", "m^3/s", 6.30902e-4),
        ("10 gal/min", "m^3/s", 6.30902e-4),
        ("36 lpm", "m^3/s", 6e-4),
        ("28 cc", "m^3", 28e-6),
        ("28 cc/rev", "m^3", 28e-6),
        ("28 cm3/rev", "m^3", 28e-6),
        ("3 m3/h", "m^3/s", 3.0 / 3600),
        ("46 cSt", "m^2/s", 46e-6),
        ("46 mm2/s", "m^2/s", 46e-6),
        ("9.81 m/s2", "m/s^2", 9.81),
        ("12 kg*m2", "kg*m^2", 12.0),
        ("0.87 g/cm3", "kg/m^3", 870.0),
        ("1000 psig", "Pa", 6.894757e6),
        ("35 barg", "Pa", 35e5),
        ("2.5 in", "m", 0.0635),
        ("2 in3/rev", "m^3", 3.277413e-5),
        ("20 kN", "N", 2e4),
        ("100 lbf", "N", 444.8222),
        ("+.5e1", "", 5.0),
    ],
)
def test_a_text_with_a_unit_becomes_si(text: str, unit: str, value: float) -> None:
    """1e-7: the digits of the psi; the others are exact but for 15 digits."""
    assert to_si(text, unit) == pytest.approx(value, rel=1e-7)


@pytest.mark.parametrize(
    ("written", "text", "unit"),
    [
        *((f"350 {word}", "350 bar", "Pa") for word in ("Bar", "BAR", "bar(g)", "bar (g)", "BARG", "Bar (G)")),
        *((f"3000 {word}", "3000 psi", "Pa") for word in ("PSI", "Psi", "PSIG", "psi(g)", "lbf/in²", "lbf/in^2")),
        *((f"35 {word}", "350 bar", "Pa") for word in ("Mpa", "N/mm²", "N/mm2", "N mm⁻²", "N*mm-2")),
        ("100 kp/cm²", "98.0665 bar", "Pa"),  # 1 kp = 9.80665 N
        *(
            (f"40 {word}", "40 l/min", "m^3/s")
            for word in ("LPM", "L/min", "ltr/min", "Liter/min", "l·min⁻¹", "dm³/min")
        ),
        *((f"10 {word}", "10 gal/min", "m^3/s") for word in ("GPM", "usgpm", "gpm")),
        *((f"28 {word}", "28 cm^3", "m^3") for word in ("ccm", "cm³", "cm³/U", "cm3/r", "ccm/U", "ml/rev", "cc / r")),
        *((f"1500 {word}", "25 Hz", "1/s") for word in ("RPM", "1/min", "/min", "min⁻¹", "min-1", "U/min", "r/min")),
        *((f"25 {word}", "25 Hz", "1/s") for word in ("rps", "s⁻¹", "s-1", "/s", "hz", "HZ", "revolutions_per_second")),
        *((f"1 {word}", "1000 1/s", "1/s") for word in ("khz", "KHz", "ms-1")),
        *((f"30{word}", "30 deg", "rad") for word in ("°", " °", " degrees")),
        *((f"40{word}", "40 degC", "K") for word in ("°C", " °C")),
        ("104 °F", "40 degC", "K"),
        *((f"80 {word}", "0.08 mm", "m") for word in ("µm", "μm", "um", "micron")),
        *((f"20 {word}", "20000 N", "N") for word in ("kN", "KN")),
        *((f"500 {word}", "500 kg", "kg") for word in ("Kg", "KG")),
        *((f"11 {word}", "11 kW", "W") for word in ("KW", "Kw")),
        ("15 HP", "15 hp", "W"),
        ("15 PS", "11.03248125 kW", "W"),  # 1 PS = 75 kp·m/s
        *((f"46 {word}", "46 mm^2/s", "m^2/s") for word in ("cst", "CST", "mm²/s")),
        *((f"200 {word}", "200 N*m", "N*m") for word in ("Nm", "N m", "N·m")),
        ("2 kNm", "2000 N*m", "N*m"),
        ("3 Nm", "3 J", "J"),
        ("200 Ns/m", "200 N*s/m", "N*s/m"),
        ("4 rad/Nm", "4 rad/(N*m)", "rad/(N*m)"),
        *((f"0.1 {word}", "0.1 kg*m^2", "kg*m^2") for word in ("kgm²", "kg m²", "kg·m2", "kgm^2")),
        ("500 Ohm", "500 ohm", "ohm"),
        ("10 Volt", "10 V", "V"),
    ],
)
def test_units_are_read_as_people_write_them(written: str, text: str, unit: str) -> None:
    assert to_si(written, unit) == pytest.approx(to_si(text, unit), rel=1e-12)


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("60 rpm", "rad/s", 6.283185307179586),
        ("1 rps", "rad/s", 6.283185307179586),
        ("1 r/s", "rad/s", 6.283185307179586),
        ("180 deg/s", "rad/s", 3.141592653589793),
        ("1 rad/s", "rad/s", 1.0),
        ("6.283185307179586 rad/s", "1/s", 1.0),
        ("1 U", "rad", 6.283185307179586),
    ],
)
def test_a_revolution_is_two_pi_radians(text: str, unit: str, value: float) -> None:
    """A value that counts revolutions, in a unit that counts radians, or the other way round."""
    assert to_si(text, unit) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "unit", "said"),
    [
        ("35 l/min", "Pa", '"35 l/min" has the wrong unit: this value is measured in Pa'),
        ("35", "Pa", '"35" has no unit: this value is measured in Pa'),
        ("35 %", "Pa", '"35 %" has the wrong unit: this value is measured in Pa'),
        ("35 bar", "", '"35 bar" has the wrong unit: this value is measured in no unit'),
        ("35 bara", "Pa", '"35 bara" is an absolute pressure: write bar, above that of the atmosphere'),
        ("500 PSIA", "Pa", '"500 PSIA" is an absolute pressure: write psi'),
        ("1 bar (a)", "Pa", '"1 bar (a)" is an absolute pressure: write bar'),
        ("35 cm4", "m^2", '"35 cm4" has no unit that can be read'),
        ("35 cm2.5", "m^2", '"35 cm2.5" has no unit that can be read'),
        ("35 baar", "Pa", '"35 baar" has no unit that can be read'),
        ("35,5 bar", "Pa", '"35,5 bar": write decimals with a point, and no thousands separator'),
        *(
            (f"{number} bar", "Pa", "write decimals with a point, and no thousands separator")
            for number in ("1'000", "1.000,5", "1 000", "-1 000 000")
        ),
        *(
            (f"1500 {word}", "rad/s", f'"1500 {word}": revolutions or radians? Write rpm or rad/s')
            for word in ("min⁻¹", "1/min", "/min", "Hz")
        ),
        ("35 mpa", "Pa", '"35 mpa" has no unit that can be read'),  # MPa or mPa
        ("20 kn", "N", '"20 kn" has the wrong unit'),  # a knot
        ("35 kg/cm²", "Pa", '"35 kg/cm²" has the wrong unit: this value is measured in Pa'),
        ("bar", "Pa", '"bar" is not a number with a unit'),
        ("", "Pa", '"" is not a number with a unit'),
        ("nan bar", "Pa", '"nan bar" is not a number with a unit'),
        ("inf bar", "Pa", '"inf bar" is not a number with a unit'),
        ("1e400 bar", "Pa", '"1e400 bar" has no finite number'),
        ("1e308 GPa", "Pa", '"1e308 GPa" is too large: at most 1e+20 Pa'),
        ("5 bar bar/", "Pa", "has no unit that can be read"),
        ("5 (bar", "Pa", "has no unit that can be read"),
        ("1 " + "bar*" * 100, "Pa", "is not a number with a unit"),
        ("__import__('os')", "Pa", "is not a number with a unit"),
        ("5 bar\0", "Pa", "has no unit that can be read"),
    ],
)
def test_error_says_what_is_wrong_with_a_quantity(text: str, unit: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is checked below
        to_si(text, unit)
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["9**9**9**9 bar", "9**9**9**9", "1 m^9^9^9^9", "1 m**9**9**9", "1 9**9**9*m"])
def test_quantities_are_not_evaluated_as_expressions(text: str) -> None:
    """As an expression this takes for ever and all memory; a message could bring it."""
    start = time.monotonic()
    with pytest.raises(ValueError, match="unit"):
        quantity(text)
    assert time.monotonic() - start < 60.0


@given(text=st.text(max_size=100))
def test_any_text_is_a_quantity_or_a_value_error(text: str) -> None:
    try:
        value = quantity(text)
    except ValueError as error:
        told = str(error)
    else:
        told = value.unit
        assert value.value == value.value
    assert len(told) < 400


@given(value=st.floats(-1e12, 1e12), unit=st.sampled_from(["bar", "psi", "MPa", "kPa"]))
def test_to_si_and_back(value: float, unit: str) -> None:
    """15 digits are kept."""
    assert from_si(to_si(f"{value!r} {unit}", "Pa"), "Pa", unit) == pytest.approx(value, rel=1e-14)


def test_quantities_know_their_si_unit() -> None:
    assert quantity("250 bar") == Quantity(value=2.5e7, unit="Pa")
    assert quantity("60 l/min") == Quantity(value=1e-3, unit="m^3/s")
    assert quantity(3) == Quantity(value=3.0, unit="")
    assert quantity("50 %") == Quantity(value=0.5, unit="")
    for unit in SI_UNITS:
        assert quantity(f"2 {unit}").unit == unit


def test_the_unit_to_convert_to_may_be_any_text() -> None:
    """As a layout or a log of another program has it: it is not evaluated either, and what pint raises is caught."""
    assert to_si("2 l", "m3") == 0.002
    assert to_si("300 K", "degC") == pytest.approx(26.85)
    for unit in ("9**9**9", "m**9**9", "Foo", "(", "dB/", "N m\0", "m" * 100):
        with pytest.raises(ValueError, match=r"not a unit that can be converted to|has no unit that can be read"):
            to_si("1 bar", unit)


@pytest.mark.parametrize("gap", ["  ", " / ", " * "])
def test_no_text_takes_long_to_be_refused(gap: str) -> None:
    """In so many gaps, there are more ways to match a part of the text than could be tried in a lifetime."""
    text = f"1 m{gap}" + f"m{gap}" * ((76 - len(gap)) // (1 + len(gap)))
    with pytest.raises(ValueError, match="has no unit that can be read"):
        quantity(f"{text}!")


def test_rates_have_the_unit_of_what_changes() -> None:
    assert quantity_per_second("250 bar/s") == Quantity(value=2.5e7, unit="Pa")
    assert quantity_per_second("6 mm/min") == Quantity(value=1e-4, unit="m")
    assert quantity_per_second("3 1/s") == Quantity(value=3.0, unit="")
    with pytest.raises(ValueError, match='write it like "250 bar/s"'):
        quantity_per_second("250 bar")


@pytest.mark.parametrize("odd", [True, None, [1], {}, float("nan"), float("inf"), 10**400, "5 kg*m^2"])
def test_invalid_quantities_are_refused(odd: object) -> None:
    with pytest.raises(ValueError, match=r"is not a|no channel is measured"):
        quantity(odd)


def test_units_need_no_folder_to_write_to(tmp_path: Path) -> None:
    """Under systemd the home folder may not be there; pint's cache then failed for every value (regression)."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    environment = {**os.environ, "HOME": str(blocked), "XDG_CACHE_HOME": str(blocked)}
    code = "from hilserver.units import to_si; print(to_si('36 l/min', 'm^3/s'))"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("0.0006", "")


class Inner(BaseModel):
    """A table within a sheet."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    length: Pressure = Field(default="1 bar", gt=0)  # type: ignore[assignment]


class Sheet(BaseModel):
    """A datasheet with a field of each kind."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    flow: Flow = Field(default="1 l/min", gt=0)  # type: ignore[assignment]
    share: Number = Field(default=0.5, ge=0, le=1)
    count: Annotated[int, Field(strict=True)] = 1
    points: tuple[tuple[Time, Number], ...] = ()
    inner: Inner | None = None
    table: dict[str, Inner] = Field(default_factory=dict)
    any: AnyQuantity | None = None


def told(**values: Any) -> str:
    """The problems of a sheet with these values."""
    with pytest.raises(ValidationError) as caught:
        Sheet.model_validate(values)
    found = problems_of(caught.value, values, file="f.toml", prefix="sheet", names=Sheet.model_fields)
    return "\n".join(map(str, found))


def test_a_datasheet_field_reads_its_default_too() -> None:
    sheet = Sheet()
    assert sheet.flow == pytest.approx(1e-3 / 60)
    assert Sheet.model_validate({"share": "40 %"}).share == 0.4
    assert Sheet.model_validate({"any": "1 bar"}).any == Quantity(value=1e5, unit="Pa")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"flow": 5}, 'f.toml: sheet.flow: 5 has no unit; write it like "40 l/min"'),
        ({"flow": "5 bar"}, '"5 bar" has the wrong unit: this value is measured in m^3/s; write it like "40 l/min"'),
        ({"flow": "0 l/min"}, 'sheet.flow: "0 l/min" is out of range: must be > 0 l/min.'),
        ({"flow": "5 lpn"}, '"5 lpn" has no unit that can be read (lpn is unknown. Did you mean lpm?); write it like'),
        ({"share": "5 foo"}, '"5 foo" has no unit that can be read (foo is unknown)'),
        ({"flow": ["x"] * 100_000}, "has no unit; write it like"),
        ({"share": 2}, "sheet.share: 2 is out of range: must be <= 1."),
        ({"share": "150 %"}, 'sheet.share: "150 %" is out of range: must be <= 100 %.'),
        ({"share": float("nan")}, "sheet.share: nan is not a finite number"),
        ({"share": 10**400}, "is not a finite number"),
        ({"share": True}, "sheet.share: True is not a number"),
        ({"share": "5 bar"}, '"5 bar" has the wrong unit: this value is measured in no unit'),
        ({"count": "3"}, 'sheet.count: "3" is not a whole number'),
        ({"points": 3}, "sheet.points: 3 is not a list"),
        ({"points": [["1 s", 2], ["x s", 3]]}, "sheet.points[1][0]: "),
        ({"points": [["1 s"]]}, "sheet.points[0][1]: missing"),
        ({"inner": 3}, "sheet.inner: 3 is not a table"),
        ({"inner": {"lenght": "1 bar"}}, "sheet.inner.lenght: unknown key. Did you mean length?"),
        ({"table": {"one": {"lenght": "1 bar"}}}, "sheet.table.one.lenght: unknown key. Did you mean length?"),
        ({"flwo": 1}, "sheet.flwo: unknown key. Did you mean flow?"),
        ({"zzzzzz": 1}, "sheet.zzzzzz: unknown key. Allowed: any, count, flow, inner, points, share, table."),
        ({"any": [1]}, 'sheet.any: [1] is not a value; write it like "250 bar"'),
    ],
)
def test_problems_name_file_key_value_and_what_is_allowed(values: dict[str, Any], said: str) -> None:
    text = told(**values)
    assert said in text
    assert len(text) < 300


def test_a_missing_table_is_named_as_one() -> None:
    class Whole(BaseModel):
        channels: dict[str, Inner]
        inner: Inner
        flow: Flow

    with pytest.raises(ValidationError) as caught:
        Whole.model_validate({})
    assert [str(found) for found in problems_of(caught.value, {}, names=Whole.model_fields)] == [
        "channels: missing: the table channels must be given.",
        "inner: missing: the table inner must be given.",
        "flow: missing: this value has no default and must be given.",
    ]


def test_all_problems_are_reported_at_once() -> None:
    assert len(told(flow=1, share=2, count="x", flwo=1).splitlines()) == 4


# --- words -----------------------------------------------------------------------------------------------------------


def test_a_similar_word_is_suggested_or_all_are_listed() -> None:
    assert did_you_mean("joystik", ["joystick", "pedal"]) == " Did you mean joystick?"
    assert did_you_mean("P_s", ["p_A", "p_S", "p_T"]) == " Did you mean p_S?"
    assert did_you_mean("zzz", ["joystick", "pedal"]) == " Allowed: joystick, pedal."
    assert did_you_mean("zzz", []) == ""
    log = ["age.p_A", "channel.p_A", "channel.p_B", "raw.p_A", "raw.p_B", "tick"]
    assert did_you_mean("p_A", log) == did_you_mean("p_a", log) == " Did you mean channel.p_A?"  # not raw.p_A
    assert did_you_mean("A", ["p_A", "raw.p_A"]) == " Did you mean p_A?"
    assert did_you_mean("raw.p_a", [*log, "p_A"]) == " Did you mean raw.p_A?"


def test_values_are_shown_short_and_in_one_line() -> None:
    assert shown("a") == '"a"'
    assert shown(3.5) == "3.5"
    assert shown("a\nb") == '"a b"'
    for odd in ("x" * 10**6, list(range(10**5)), 1 << 100_000, nested(100_000)):
        assert len(shown(odd)) <= 60


def nested(depth: int) -> list[Any]:
    """A list in a list in a list …"""
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


def test_a_place_is_written_as_in_the_file() -> None:
    assert dotted(("components", "relief", "override", 1, 0)) == "components.relief.override[1][0]"
    assert str(Problem("is wrong.", "a.b", "f.toml")) == "f.toml: a.b: is wrong."
    assert str(Problem("is wrong.")) == "is wrong."


@pytest.mark.parametrize(
    ("word", "names", "hint"),
    [
        ("piston_diameter", ["bore", "stroke"], " Did you mean bore?"),
        ("rod", ["bore", "rod_diameter", "stroke"], " Did you mean rod_diameter?"),
        ("diameter", ["bore", "rod_diameter", "stroke"], " Did you mean bore or rod_diameter?"),
        ("dead_volume", ["dead_volume_A", "dead_volume_B"], " Did you mean dead_volume_A or dead_volume_B?"),
        ("Rated_Flow", ["nominal_flow", "f90"], " Did you mean nominal_flow?"),
        ("bandwidth", ["f45", "nominal_flow"], " Did you mean f45?"),
        ("set_pressure", ["opening_pressure", "set_pressure_A"], " Did you mean opening_pressure?"),
        ("F90", ["f45", "f90"], " Did you mean f90?"),
        ("storke", ["bore", "stroke"], " Did you mean stroke?"),
        ("opening_rte", ["opening", "opening_rate"], " Did you mean opening_rate?"),
        ("flow_rat", ["flow", "flow_rate"], " Did you mean flow_rate?"),
        ("rod_seal_drag", ["rod_seal", "stroke"], " Did you mean rod_seal?"),
        ("p", ["p_A", "p_B", "p_S", "p_T"], " Allowed: p_A, p_B, p_S, p_T."),
        ("colour", ["bore", "stroke"], " Allowed: bore, stroke."),
    ],
)
def test_a_hint_knows_other_names_of_a_key(word: str, names: list[str], hint: str) -> None:
    assert did_you_mean(word, names) == hint


def test_a_configuration_error_lists_all_its_problems() -> None:
    error = ConfigurationError(Problem(text, file="f") for text in ("one", "two"))
    assert str(error) == "f: one\nf: two"
    assert len(error.problems) == 2


PRODUCTS = (
    *("l/min", "cm^3/rev", "l/min/bar", "m^3/(s*Pa)", "Pa^0.5", "1/s", "s^-1", "mm**2/s", "kg m^2", "rev/min", "%/s"),
    *("N*m*s", "(kN*m)", "bar*l/min/kW", "kg/m/s^2", "W/(m^2*K)", "ohm*A", "gpm/bar^0.5", "m/m", "deg/s", "in^2·Pa"),
)


@pytest.mark.parametrize("unit", [*COMMON_UNITS, *PRODUCTS])
def test_the_common_units_are_those_of_pint(unit: str) -> None:
    """They are read and converted without pint, and give the same numbers, bit for bit."""
    usual, every = registries.common_registry(), registries.every_unit()
    assert registries.registry(unit) is usual
    for value in (1.0, 3.7, 28.0, 1450.0, 0.123456789):
        amounts = [usual.Quantity(value, usual.parse_units(unit)), every.Quantity(value, every.parse_units(unit))]
        assert amounts[0].unitless == amounts[1].unitless
        assert amounts[0].dimensionality == dict(amounts[1].dimensionality)
        targets = (*filter(None, units.SI_UNITS), "dimensionless", "J", "W", "V", "A", "ohm", "rad", "m^3/(s*Pa)")
        for target in (*targets, "m^2/s", "N*m*s", "kg*m^2", "rad/s", "Pa^0.5"):
            fits = [amount.is_compatible_with(target) for amount in amounts]
            assert fits[0] == fits[1]
            if fits[0]:
                first, second = (units.round_trip(float(amount.to(target).magnitude)) for amount in amounts)
                assert first == second


def test_a_value_is_not_shown_in_a_unit_of_another_quantity() -> None:
    with pytest.raises(ValueError, match="m\\^3/s can't be converted to bar"):
        from_si(1.0, "m^3/s", "bar")


@pytest.mark.parametrize("text", ["5 (bar", "5 bar)", "5 m^3/(s*Pa", "5 (m)*s)"])
def test_parentheses_must_match(text: str) -> None:
    with pytest.raises(ValueError, match="has no unit that can be read"):
        to_si(text, "Pa")
