"""The dialogue of ``hilserver new --ask``: one question after the other, each repeated until its answer is possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from hilserver.cli.prose import say

if TYPE_CHECKING:
    from hilserver.commissioning.questions import Answers, Question


def asked(given: Answers, judge: Callable[[Answers], None]) -> Answers:
    """Answers to all questions: those that are given, and the user's answers to the others.

    ``judge`` raises ConfigurationError where the answers so far can't be used together.
    """
    from hilserver.commissioning.questions import Answers, open_questions

    answers = Answers(given.catalogue)
    for question in open_questions(answers):
        if answers.settle(question, given):
            say(f"{question.key} = {answers[question.key]} ({answers.origins[question.key]})", indent=2)
        else:
            _ask(question, answers, judge)
    return answers


def _ask(question: Question, answers: Answers, judge: Callable[[Answers], None]) -> None:
    from hilserver.commissioning.questions import ANSWERED, ASSUMED
    from hilserver.errors import ConfigurationError

    choices, default = list(question.choices(answers).items()), question.default(answers)
    say(f"\n{question.text}")
    for number, (name, text) in enumerate(choices, 1):
        say(f"  {number}  {name}: {text}", indent=5)
    while True:
        said = str(typer.prompt(question.key, default=default)).strip()
        if choices and said.isdigit() and 1 <= int(said) <= len(choices):
            said = choices[int(said) - 1][0]
        try:
            answers.put(question.key, said, ASSUMED if said == default else ANSWERED)
            if said != default:  # which fits the answers before it
                judge(answers)
            return
        except ConfigurationError as error:
            answers.texts.pop(question.key, None)
            for message in dict.fromkeys(problem.message for problem in error.problems):
                say(f"  Not possible: {message}", indent=2)
