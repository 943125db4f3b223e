"""The output that a model wants to give, judged: its references resolve, and what they come to fits the schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acts.language.errors import Problem, TooComplex
from acts.language.schemas import checker
from acts.language.values import Json, pointer
from acts.language.wire import SCHEMA_MISMATCH, TOO_COMPLEX, UNRESOLVED
from acts.planner.solution import embedded_problems, resolve_output

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from acts.language.references import Path

_EMPTY = "emptySolution"


class OutputCheck:
    """The output of one agent. ``wanted`` is as the model wrote it, ``value`` what it came to: None until it holds."""

    def __init__(self, schema: Json) -> None:
        self.schema = schema
        self.wanted: Json = None
        self.value: Json = None

    def find_problems(self, read: Callable[[Path], Json], kinds: Container[str]) -> list[Problem]:
        """Why the output does not hold; none when it does. ``read`` is the context now, ``kinds`` are those in it."""
        if self.wanted is None:
            return [Problem(_EMPTY, "the answer has neither calls nor an output: give one of them")]
        if embedded := list(embedded_problems(self.wanted, kinds)):
            return embedded
        missing: list[str] = []
        output = resolve_output(self.wanted, read, missing)
        if missing:
            listed = ", ".join(dict.fromkeys(missing))
            return [Problem(UNRESOLVED, f"the output refers to {listed}, and nothing is there", "/output")]
        if output is None:
            return [Problem(_EMPTY, "the output refers to null: that is no output", "/output")]
        try:
            defects = [] if self.schema is None else checker(self.schema).defects(output)
        except TooComplex as error:
            return [Problem(TOO_COMPLEX, f"the output: {error}", "/output")]
        self.value = None if defects else output
        return [Problem(SCHEMA_MISMATCH, f"the output: {why}", pointer("output", *at)) for at, why in defects]
