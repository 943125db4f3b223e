"""What a rehearsal came to, against what a case expects of it.

Laws of this file: nothing here decides what a plan does. A part of a State is compared by the keys that the case
names; a list is compared as a whole, and ``{"$absent": true}`` matches what does not exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import suggest
from acts.language.values import ABSENT, Json
from acts.testing.canned_results import unknown_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acts.testing.case_file import Expectations, PlanCase
    from acts.testing.rehearsal import Rehearsal, StartedCall

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
    nodes = [node for node, _ in rehearsal.calls]
    instances = dict.fromkeys(n.instance for n in nodes if n.instance is not None)
    wrong = unknown_names(case.results, nodes, [*instances])
    names = [*dict.fromkeys(name for node in nodes for name in (node.tool.name, node.id))]
    out = [Mismatch(_unknown_text(name, names)) for name in wrong]
    out += [Mismatch(text) for text in rehearsal.complaints]
    out += _compare_end(case.expect, rehearsal.status, rehearsal.result)
    if case.expect.calls is not None:
        out += _compare_calls(case.expect.calls, rehearsal.started)
    out += _compare_states(case.expect.states, rehearsal)
    if case.expect.errors is not None:
        out += _compare_errors(case.expect.errors, rehearsal.result["errors"])
    results = rehearsal.result.get("instances") or {}
    for id_, expect in case.expect.instances.items():
        if id_ not in results:
            out.append(Mismatch(f"there is no instance {id_}"))
        else:
            out += _compare_end(expect, results[id_]["status"], results[id_], f" of the instance {id_}")
    return out


def _unknown_text(name: str, names: Sequence[str]) -> str:
    hint = suggest(name, names)
    return f'no call of the plan has the canned result "{name}"' + (f" ({hint})" if hint else "")


def _compare_end(expect: Expectations, status: str, result: Mapping[str, Any], whose: str = "") -> list[Mismatch]:
    out = []
    if status != expect.status:
        reasons = "".join(f"; {e['call']}: [{e['code']}] {e['message']}" for e in result["errors"][:3])
        out.append(Mismatch(f"the status{whose} is {status}, not {expect.status}{reasons}"))
    if expect.state is not None:
        actual = result["state"] if expect.state_is_exact else project(expect.state, result["state"])
        if actual != (expect.state if expect.state_is_exact else _without_absent(expect.state)):
            wanted = expect.state if expect.state_is_exact else _without_absent(expect.state)
            out.append(Mismatch(f"the state{whose} differs", wanted, actual))
    return out


def project(expected: Json, actual: Json) -> Json:
    """The part of a value that an expectation names; keys that exist against the expectation are in it."""
    if expected == _ABSENT:
        return actual
    if not isinstance(expected, dict) or not isinstance(actual, dict):
        return actual
    parts = {k: project(v, actual.get(k, ABSENT)) for k, v in expected.items()}
    return {k: v for k, v in parts.items() if v is not ABSENT}


def _without_absent(expected: Json) -> Json:
    """The expectation without what must not exist."""
    if not isinstance(expected, dict):
        return expected
    return {k: _without_absent(v) for k, v in expected.items() if v != _ABSENT}


def _compare_calls(expected: Sequence[Mapping[str, Any]], started: Sequence[StartedCall]) -> list[Mismatch]:
    """Compare the Calls that ran, in plan order. A Call with elements is one row, unless a row names an element."""
    named = {row.get("call") for row in expected}
    by_element = {call.call_id for call in started if call.element is not None and call.id in named}
    actual: list[StartedCall] = []
    for call in started:
        is_repeated = actual and call.element is not None and (actual[-1].call_id, actual[-1].instance) == (
            call.call_id, call.instance
        )  # fmt: skip
        if not is_repeated or call.call_id in by_element:
            actual.append(call)
    ids = [call.id if call.call_id in by_element else call.call_id for call in actual]
    if ids != [row.get("call") for row in expected]:
        return [Mismatch("other calls ran", [row.get("call") for row in expected], ids)]
    out = []
    for row, call, id_ in zip(expected, actual, ids, strict=True):
        wanted = row.get("with")
        parameters = project(wanted, call.parameters)
        if wanted is not None and parameters != _without_absent(wanted):
            out.append(Mismatch(f"{id_} is called with other parameters", wanted, parameters))
    return out


def _compare_states(expected: Mapping[str, str], rehearsal: Rehearsal) -> list[Mismatch]:
    out = []
    for id_, state in expected.items():
        states = {call.state for node, call in rehearsal.calls if id_ in (node.id, f"{node.instance}/{node.id}")}
        if not states:
            out.append(Mismatch(f"the plan has no call {id_}"))
        elif states != {state}:
            out.append(Mismatch(f"{id_} is {', '.join(sorted(states))}, not {state}"))
    return out


def _compare_errors(expected: Sequence[Mapping[str, Any]], errors: Sequence[Mapping[str, Any]]) -> list[Mismatch]:
    """Compare the failures that no error path took, each by the keys that the case names."""
    fits = len(expected) == len(errors) and all(
        row == project(dict(row), dict(error)) for row, error in zip(expected, errors, strict=True)
    )
    if fits:
        return []
    keys = {key for row in expected for key in row} or {"call", "code"}
    actual = [{k: v for k, v in error.items() if k in keys} for error in errors]
    return [Mismatch("the errors differ", [dict(row) for row in expected], actual)]
