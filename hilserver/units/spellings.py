"""The usual units, and units as people write them in datasheets: ``350 Bar``, ``1500 min⁻¹``, ``28 cm³/U``."""

from __future__ import annotations

import math
import re

COMMON_UNITS = {
    "m": "[length]", "km": "1000 m", "cm": "0.01 m", "mm": "0.001 m", "µm": "1e-6 m",
    "s": "[time]", "ms": "0.001 s", "µs": "1e-6 s", "us": "1e-6 s", "ns": "1e-9 s", "min": "60 s", "h": "3600 s",
    "Hz": "1 / s", "kHz": "1000 Hz", "MHz": "1e6 Hz",
    "kg": "[mass]", "g": "0.001 kg", "t": "1000 kg",
    "K": "[temperature]; offset: 0",
    "N": "kg m / s ** 2", "kN": "1000 N", "MN": "1e6 N",
    "Pa": "N / m ** 2", "kPa": "1000 Pa", "MPa": "1e6 Pa", "GPa": "1e9 Pa", "bar": "1e5 Pa", "mbar": "100 Pa",
    "l": "0.001 m ** 3", "L": "0.001 m ** 3", "ml": "1e-6 m ** 3",
    "J": "N m", "W": "J / s", "kW": "1000 W", "MW": "1e6 W",
    "A": "[current]", "mA": "0.001 A", "V": "W / A", "mV": "0.001 V", "ohm": "V / A",
    "in": "0.0254 m", "gpm": "231 in ** 3 / min", "lpm": "l / min", "cc": "cm ** 3", "cSt": "0.01 cm ** 2 / s",
    "barg": "bar", "percent": "0.01 = %",
    "rad": "[]", "deg": f"{math.pi!r} / 180 rad", "rev": "1", "rpm": "rev / min", "rps": "rev / s",
}  # fmt: skip
"""The units in nearly all files, each word with its definition for pint.

Gallons are those of the USA. ``barg`` and ``psig`` are gauge pressures, like all pressures here. (``psi`` is not among
them: pint's own differs in the last digits, which logs of earlier versions contain.)
"""
_BY_UNIT = {
    "bar": "Bar BAR", "barg": "Barg BARG", "MPa": "Mpa", "psi": "Psi PSI", "psig": "Psig PSIG", "kgf": "kp",
    "l": "Liter Litre ltr Ltr", "cc": "ccm", "lpm": "Lpm LPM", "gpm": "Gpm GPM usgpm USGPM", "cSt": "cst CST",
    "rev": "U r", "rpm": "Rpm RPM revolutions_per_minute", "rps": "revolutions_per_second",
    "Hz": "hz HZ", "kHz": "khz KHz KHZ", "deg": "°", "degC": "°C", "degF": "°F",
    "kg": "Kg KG", "kN": "KN", "kW": "Kw KW", "hp": "Hp HP", "metric_horsepower": "PS", "V": "Volt", "ohm": "Ohm",
    "(N*m)": "Nm", "(kN*m)": "kNm", "(N*s)": "Ns", "kg*m": "kgm",
}  # fmt: skip
SPELLINGS = {word: unit for unit, words in _BY_UNIT.items() for word in words.split()}
"""Words that mean one thing in hydraulics -> the unit as pint reads it, where pint knows none or another one.

``U`` and ``r`` are revolutions. (``mpa`` may be MPa or mPa, ``kn`` is a knot: such words are not among them.)
"""
ABSOLUTE = ("bara", "Bara", "BARA", "psia", "Psia", "PSIA")
"""Units of absolute pressures."""
_WORD = re.compile(r"(?<![\w°])(?:°[CF]?(?!\w)|[^\W\d]+(?![\w°]))")
_GAUGE = re.compile(r"(?<=bar|psi)\s*\(([ag])\)", re.IGNORECASE)
_SUPERSCRIPT = re.compile("(⁻?)([¹²³])")
_POWER = re.compile(r"(?<![^\W\d_°])([^\W\d_]+)(-[12]|[23])(?![\w.^*])")
"""A power as in ``cm3``, ``mm2/s`` and ``min-1``."""


def plain_unit(text: str) -> str:
    """A unit in the words and signs that pint reads.

    >>> plain_unit("cm³/U"), plain_unit("min⁻¹"), plain_unit("/min"), plain_unit("Bar (g)")
    ('cm^3/rev', 'min^-1', '1/min', 'barg')
    """
    text = _SUPERSCRIPT.sub(lambda sign: f"^{'-' * len(sign[1])}{'¹²³'.index(sign[2]) + 1}", text.strip())
    text = _GAUGE.sub(lambda mark: mark[1].lower(), _POWER.sub(r"\1^\2", text))
    text = _WORD.sub(lambda word: SPELLINGS.get(word[0], word[0]), text)
    return f"1{text}" if text.startswith("/") else text
