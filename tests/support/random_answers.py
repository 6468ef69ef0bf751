"""Random answers to the questions of ``hilserver new``, each possible with those before it."""

from __future__ import annotations

import random

from hilserver.commissioning.questions import ASSUMED, QUESTIONS, Answers, Catalogue, open_questions

SHARE_OF_DEFAULTS = 0.3


def random_answers(catalogue: Catalogue, seed: int) -> Answers:
    """Answers to all questions. The load is one that the cylinder can lift."""
    chance, answers, nothing = random.Random(seed), Answers(catalogue), Answers(catalogue)
    for question in open_questions(answers):
        if answers.settle(question, nothing):
            continue
        text = question.default(answers)
        if chance.random() > SHARE_OF_DEFAULTS:
            text = _random(question.key, text, answers, chance)
        answers.put(question.key, text, ASSUMED)
    return answers


def _random(key: str, default: str, answers: Answers, chance: random.Random) -> str:
    if choices := QUESTIONS[key].choices(answers):
        return chance.choice(list(choices))
    if key in SPANS:
        low, high, unit = SPANS[key]
        return f"{low + (high - low) * chance.random() ** 2:.4g} {unit}".strip()
    if key == "rod_diameter":
        return f"{1e3 * answers.value('bore') * chance.uniform(0.3, 0.85):.4g} mm"
    if key == "f3":
        return f"{answers.value('f90') * chance.uniform(0.4, 1.4):.4g} Hz"
    if key == "flow_range":
        return f"{chance.uniform(10.0, 200.0):.3g} l/min"
    number, _, unit = default.partition(" ")
    if key in NEAR and unit:
        return f"{float(number) * chance.uniform(*NEAR[key]):.4g} {unit}"
    return default


SPANS = {
    "flow": (3.0, 300.0, "l/min"),
    "drop": (5.0, 70.0, "bar"),
    "f90": (20.0, 250.0, "Hz"),
    "damping": (0.5, 1.2, ""),
    "leakage": (0.0, 4.0, "l/min"),
    "leakage_drop": (35.0, 210.0, "bar"),
    "overlap": (0.0, 0.1, ""),
    "bore": (25.0, 200.0, "mm"),
    "stroke": (0.1, 2.0, "m"),
    "dead_volume": (0.1, 2.0, "l"),
    "supply_pressure": (70.0, 315.0, "bar"),
    "rate": (200.0, 1000.0, "Hz"),
}
"""Least, greatest and unit of values that depend on no other."""
NEAR = {
    "mass": (0.2, 1.5),
    "virtual_flow": (0.3, 1.2),
    "virtual_pressure": (0.8, 1.2),
    "pressure_limit": (0.8, 1.0),
    "pressure_range": (1.0, 1.5),
}
"""Shares of the default within which the load can still be lifted."""
