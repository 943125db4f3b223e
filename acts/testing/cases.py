"""The cases of a test file, and what a rehearsal did against what a case expects.

* A file is read completely, and every problem is reported at once, with its JSON pointer.
* A part of a State is compared by the keys that the case names; a list is compared as a whole, and ``{"$absent":
  true}`` matches what does not exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from acts.language.errors import InvalidRequest, Problem, suggest
from acts.language.values import ABSENT, Json, pointer
from acts.testing.rehearsal import unknown_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic_core import ErrorDetails

    from acts.testing.rehearsal import Rehearsal, StartedCall


COMPLETED: Final = "completed"
AWAITING: Final = "awaiting"
Status = Literal["completed", "partial", "failed", "rejected", "awaiting"]
Decisions = Literal["approve"] | list[dict[str, Any]]


# -- the cases of a file -----------------------------------------------------------------------


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _CallPart(_Part):
    """Something of a Call; a text is its id."""

    call: Any = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, row: Any) -> Any:
        return {"call": row} if isinstance(row, str) else row


class ExpectedCall(_CallPart):
    """A Call that runs, and what it is called with."""

    call: str
    parameters: dict[str, Any] | None = Field(default=None, alias="with")


class ExpectedError(_CallPart):
    """A failure that no error path took."""

    instance: Any = None
    code: Any = None
    message: Any = None


class ExpectedEnd(_Part):
    """How a run, or one instance of it, ends. Of ``state``, what must be in it; of ``exactState``, all of it."""

    status: Status = COMPLETED
    state: Any = None
    exactState: Any = None


class Expectations(ExpectedEnd):
    """What a case expects. None: nothing is expected of it.

    ``calls`` are the Calls that run, in plan order; ``states`` the final state by Call id.
    """

    calls: list[ExpectedCall] | None = None
    states: dict[str, str] = {}
    errors: list[ExpectedError] | None = None
    instances: dict[str, ExpectedEnd] = {}


class PlanCase(_Part):
    """One case. ``context`` are messages that are added to the plan's, ``provide`` those that come while it runs."""

    name: str = ""
    input: Any = None
    context: list[Any] = []
    results: dict[str, Any] = {}
    decisions: Decisions = []
    provide: list[Any] = []
    expect: Expectations = Expectations()

    @property
    def messages(self) -> list[Any]:
        """The messages that are added to the plan's, the input last."""
        own = [{"type": "input", "input": self.input}] if "input" in self.model_fields_set else []
        return [*self.context, *own]


class CaseFile(_Part):
    """A test file. ``plan`` is the path of the plan, relative to the file; None: the file beside it.

    ``results`` and ``decisions`` are shared by the cases that have none of their own.
    """

    plan: str | None = None
    cases: list[PlanCase] = Field(min_length=1)
    results: dict[str, Any] = {}
    decisions: Decisions = []

    @field_validator("cases")
    @classmethod
    def _have_own_names(cls, cases: list[PlanCase]) -> list[PlanCase]:
        named = [case.model_copy(update={"name": case.name or f"case {n}"}) for n, case in enumerate(cases, 1)]
        names = [case.name for case in named]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise ValueError(f'two cases are called "{repeated[0]}"')
        return named


def read_case_file(raw: Json) -> CaseFile:
    """A test file from its JSON; its cases have the results and decisions that they share.

    Raises:
        InvalidRequest: with every problem.
    """
    try:
        file = CaseFile.model_validate(raw)
    except ValidationError as error:
        raise InvalidRequest([_problem(item) for item in error.errors(include_url=False)]) from None
    cases = []
    for case in file.cases:
        own: dict[str, Any] = {} if "decisions" in case.model_fields_set else {"decisions": file.decisions}
        cases.append(case.model_copy(update={**own, "results": {**file.results, **case.results}}))
    return file.model_copy(update={"cases": cases})


_KEYS: Final = sorted(
    {
        field.alias or name
        for part in (CaseFile, PlanCase, Expectations, ExpectedCall, ExpectedError)
        for name, field in part.model_fields.items()
    }
)


def _problem(error: ErrorDetails) -> Problem:
    """A problem of the file from one of pydantic's errors."""
    key = str(error["loc"][-1]) if error["loc"] else ""
    if error["type"] == "extra_forbidden":
        return Problem("testFile", f'unknown key "{key}"', pointer(*error["loc"]), hint=suggest(key, _KEYS))
    return Problem("testFile", f'"{key}": {error["msg"]}', pointer(*error["loc"]))


# -- what happened against what is expected --------------------------------------------------------


_ABSENT: Final = {"$absent": True}


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One difference. ``expected`` and ``actual`` are JSON to be compared; both None where the text says it all."""

    text: str
    expected: Json = None
    actual: Json = None

    def to_json(self) -> dict[str, Any]:
        """``{message, expected?, actual?}``"""
        if self.expected is None and self.actual is None:
            return {"message": self.text}
        return {"message": self.text, "expected": self.expected, "actual": self.actual}


def find_mismatches(case: PlanCase, rehearsal: Rehearsal) -> list[Mismatch]:
    """Every difference between what happened and what the case expects."""
    expect, nodes, results = case.expect, [node for node, _ in rehearsal.calls], rehearsal.result.get("instances") or {}
    names = [*dict.fromkeys(name for node in nodes for name in (node.tool.name, node.id))]
    unknown = [(name, suggest(name, names)) for name in unknown_names(case.results, nodes)]
    out = [
        Mismatch(f'no call of the plan has the canned result "{name}"' + (f" ({hint})" if hint else ""))
        for name, hint in unknown
    ]
    out += [Mismatch(text) for text in rehearsal.complaints]
    out += _compare_end(expect, rehearsal.status, rehearsal.result)
    if expect.calls is not None:
        out += _compare_calls(expect.calls, rehearsal.started)
    for id_, state in expect.states.items():
        states = {call.state for node, call in rehearsal.calls if id_ in (node.id, f"{node.instance}/{node.id}")}
        if states != {state}:
            out.append(Mismatch(f"{id_} is {', '.join(sorted(states)) or 'no call of the plan'}, not {state}"))
    if expect.errors is not None:
        out += _compare_errors(expect.errors, rehearsal.result["errors"])
    for id_, end in expect.instances.items():
        if id_ in results:
            out += _compare_end(end, results[id_]["status"], results[id_], f" of the instance {id_}")
        else:
            out.append(Mismatch(f"there is no instance {id_}"))
    return out


def _compare_end(expect: ExpectedEnd, status: str, result: Mapping[str, Any], whose: str = "") -> list[Mismatch]:
    out = []
    if status != expect.status:
        reasons = "".join(f"; {e['call']}: [{e['code']}] {e['message']}" for e in result["errors"][:3])
        out.append(Mismatch(f"the status{whose} is {status}, not {expect.status}{reasons}"))
    part, whole = project(expect.state, result["state"]), result["state"]
    for wanted, actual in ((expect.state, part), (expect.exactState, whole)):
        if wanted is not None and actual != wanted:
            out.append(Mismatch(f"the state{whose} differs", wanted, actual))
    return out


def project(expected: Json, actual: Json) -> Json:
    """The part of a value that an expectation names; ``{"$absent": true}`` for what it says is absent, and is."""
    if expected == _ABSENT:
        return _ABSENT if actual is ABSENT else actual
    if not isinstance(expected, dict) or not isinstance(actual, dict):
        return actual
    parts = {k: project(v, actual.get(k, ABSENT)) for k, v in expected.items()}
    return {k: v for k, v in parts.items() if v is not ABSENT}


def _compare_calls(expected: Sequence[ExpectedCall], started: Sequence[StartedCall]) -> list[Mismatch]:
    """Compare the Calls that ran, in plan order. A Call with elements is one row, unless a row names an element."""
    named = [row.call for row in expected]
    by_element = {call.call_id for call in started if call.id in named}
    actual: dict[tuple[str, str | None], StartedCall] = {}
    for call in started:
        actual.setdefault((call.id if call.call_id in by_element else call.call_id, call.instance), call)
    ids = [id_ for id_, _ in actual]
    if ids != named:
        return [Mismatch("other calls ran", named, ids)]
    out = []
    for row, call in zip(expected, actual.values(), strict=True):
        parameters = project(row.parameters, call.parameters)
        if row.parameters is not None and parameters != row.parameters:
            out.append(Mismatch(f"{row.call} is called with other parameters", row.parameters, parameters))
    return out


def _compare_errors(expected: Sequence[ExpectedError], errors: Sequence[Mapping[str, Any]]) -> list[Mismatch]:
    """Compare the failures that no error path took, each by the keys that the case names."""
    rows = [row.model_dump(exclude_unset=True) for row in expected]
    if len(rows) == len(errors) and all(row == project(row, dict(e)) for row, e in zip(rows, errors, strict=True)):
        return []
    return [Mismatch("the errors differ", rows, [dict(error) for error in errors])]
