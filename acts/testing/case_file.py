"""The cases of a test file: what a plan is run with, and what is expected of it.

Laws of this file: a file is read completely, and every problem is reported at once, with its JSON pointer. What the
plan does is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import InvalidRequest, Problem, brief, format_choices, suggest
from acts.language.values import Json, pointer, type_name
from acts.testing.rehearsal import APPROVE_ALL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

COMPLETED: Final = "completed"
AWAITING: Final = "awaiting"
STATUSES: Final = (COMPLETED, "partial", "failed", "rejected", AWAITING)
_SHARED: Final = ("results", "decisions")
_FILE_KEYS: Final = ("plan", "cases", *_SHARED)
_CASE_KEYS: Final = ("name", "input", "context", *_SHARED, "provide", "expect")
_EXPECT_KEYS: Final = ("status", "state", "exactState", "calls", "states", "errors", "instances")
_INSTANCE_KEYS: Final = ("status", "state", "exactState")
_CALL_KEYS: Final = ("call", "with")
_ERROR_KEYS: Final = ("call", "instance", "code", "message")


@dataclass(frozen=True, slots=True)
class Expectations:
    """What a case expects. None: nothing is expected of it.

    ``state`` holds what must be in the State, all of it if ``state_is_exact``; ``calls`` are the Calls that run, in
    plan order, each an id or ``{call, with}``; ``states`` the final state by Call id; ``errors`` those that no error
    path took; ``instances`` the expectations of each instance.
    """

    status: str = COMPLETED
    state: Json = None
    state_is_exact: bool = False
    calls: tuple[Json, ...] | None = None
    states: Mapping[str, str] = field(default_factory=dict)
    errors: tuple[Mapping[str, Any], ...] | None = None
    instances: Mapping[str, Expectations] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlanCase:
    """One case. ``context`` are messages that are added to the plan's, ``provide`` those that come while it runs."""

    name: str
    pointer: str
    context: tuple[Json, ...]
    results: Mapping[str, Any]
    decisions: tuple[Mapping[str, Any], ...] | str
    provide: tuple[Json, ...]
    expect: Expectations


@dataclass(frozen=True, slots=True)
class CaseFile:
    """A test file. ``plan`` is the path of the plan, relative to the file; None: the file beside it."""

    plan: str | None
    cases: tuple[PlanCase, ...]


def read_case_file(raw: Json) -> CaseFile:
    """A test file from its JSON.

    Raises:
        InvalidRequest: with every problem.
    """
    reader = _Reader()
    cases = reader.read_file(raw)
    if reader.problems:
        raise InvalidRequest(reader.problems)
    plan = raw.get("plan") if isinstance(raw, dict) else None
    return CaseFile(plan, tuple(cases))


class _Reader:
    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def read_file(self, raw: Json) -> list[PlanCase]:
        if not self._is_object(raw, _FILE_KEYS, ()):
            return []
        self._check_type(raw, "plan", str, ())
        items = raw.get("cases")
        if not isinstance(items, list) or not items:
            self._report("a test file has a list of cases", ("cases",), "cases:\n  - name: …")
            return []
        out = [self._read_case(item, raw, index) for index, item in enumerate(items)]
        names: set[str] = set()
        for index, case in enumerate(out):
            if case.name in names:
                self._report(f'two cases are called "{case.name}"', ("cases", index, "name"))
            names.add(case.name)
        return out

    def _read_case(self, raw: Json, shared: Mapping[str, Any], index: int) -> PlanCase:
        at: tuple[str | int, ...] = ("cases", index)
        if not self._is_object(raw, _CASE_KEYS, at):
            raw = {}
        self._check_type(raw, "name", str, at)
        results = {**self._results(shared, ()), **self._results(raw, at)}
        context = [*self._list(raw, "context", at)]
        if "input" in raw:
            context.append({"type": "input", "input": raw["input"]})
        decisions = self._decisions(raw, at) if "decisions" in raw else self._decisions(shared, ())
        expect = self._read_expectations(raw.get("expect", {}), _EXPECT_KEYS, (*at, "expect"))
        name = str(raw.get("name") or f"case {index + 1}")
        provided = tuple(self._list(raw, "provide", at))
        return PlanCase(name, pointer(*at), tuple(context), results, decisions, provided, expect)

    def _results(self, raw: Mapping[str, Any], at: tuple[str | int, ...]) -> Mapping[str, Any]:
        self._check_type(raw, "results", dict, at)
        results = raw.get("results")
        return results if isinstance(results, dict) else {}

    def _decisions(self, raw: Mapping[str, Any], at: tuple[str | int, ...]) -> tuple[Mapping[str, Any], ...] | str:
        decisions = raw.get("decisions", [])
        if decisions == APPROVE_ALL:
            return APPROVE_ALL
        if not isinstance(decisions, list) or not all(isinstance(d, dict) for d in decisions):
            hint = "a list of {decision: approve, call: 2:pay}, as `decide` takes them"
            self._report(
                f'"decisions" is {brief(decisions)}', (*at, "decisions"), f'{hint}; or "{APPROVE_ALL}" for all'
            )
            return ()
        return tuple(decisions)

    def _read_expectations(self, raw: Json, keys: Iterable[str], at: tuple[str | int, ...]) -> Expectations:
        if not self._is_object(raw, tuple(keys), at):
            return Expectations()
        status = raw.get("status", COMPLETED)
        if status not in STATUSES:
            hint = suggest(str(status), STATUSES)
            self._report(f"the status is one of {', '.join(STATUSES)}, not {brief(status)}", (*at, "status"), hint)
        if "state" in raw and "exactState" in raw:
            self._report('"state" and "exactState" exclude each other', (*at, "exactState"))
        states = raw.get("states", {})
        self._check_type(raw, "states", dict, at)
        instances = raw.get("instances", {})
        self._check_type(raw, "instances", dict, at)
        return Expectations(
            status=status, state=raw.get("exactState", raw.get("state")), state_is_exact="exactState" in raw,
            calls=self._rows(raw, "calls", _CALL_KEYS, at), states=states if isinstance(states, dict) else {},
            errors=self._rows(raw, "errors", _ERROR_KEYS, at),
            instances={
                str(id_): self._read_expectations(item, _INSTANCE_KEYS, (*at, "instances", id_))
                for id_, item in (instances.items() if isinstance(instances, dict) else ())
            },
        )  # fmt: skip

    def _rows(
        self, raw: Mapping[str, Any], key: str, keys: tuple[str, ...], at: tuple[str | int, ...]
    ) -> tuple[Any, ...] | None:
        """A list of objects with these keys, or of the texts of the first of them; None where there is none."""
        if key not in raw:
            return None
        rows = self._list(raw, key, at)
        for index, row in enumerate(rows):
            if not isinstance(row, str):
                self._is_object(row, keys, (*at, key, index))
        return tuple({keys[0]: row} if isinstance(row, str) else row for row in rows)

    # -- problems ------------------------------------------------------------------------------

    def _is_object(self, raw: Json, keys: tuple[str, ...], at: tuple[str | int, ...]) -> bool:
        if not isinstance(raw, dict):
            self._report(f"this is an object with {format_choices(keys)}, not {type_name(raw)}", at)
            return False
        for key in raw:
            if key not in keys:
                hint = suggest(str(key), keys) or f"allowed: {format_choices(keys)}"
                self._report(f'unknown key "{key}"', (*at, key), hint)
        return True

    def _list(self, raw: Mapping[str, Any], key: str, at: tuple[str | int, ...]) -> list[Any]:
        self._check_type(raw, key, list, at)
        value = raw.get(key)
        return value if isinstance(value, list) else []

    def _check_type(self, raw: Mapping[str, Any], key: str, type_: type, at: tuple[str | int, ...]) -> None:
        if key in raw and not isinstance(raw[key], type_):
            wanted = {"str": "a string", "list": "a list", "dict": "an object"}[type_.__name__]
            self._report(f'"{key}" is {wanted}, not {type_name(raw[key])}', (*at, key))

    def _report(self, text: str, at: tuple[str | int, ...], hint: str | None = None) -> None:
        self.problems.append(Problem("testFile", text, pointer(*at), hint=hint))
