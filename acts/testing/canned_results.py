"""Canned results: what a test says that a Tool, a model or a delegate answers.

Laws of this file: a canned result is looked up by the Call alone, never by the order in which Calls end. Forms that
are no plain value are objects with one of the keys below; ``$value`` holds any value as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import CallError, brief, format_choices
from acts.language.values import Json, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from acts.plan.planned_call import PlannedCall

# A failure: its code, or {code, message?, details?}
ERROR: Final = "$error"
# One result per Call, or per element, of a Tool: in plan order
SEQUENCE: Final = "$sequence"
# The outcome that a latent Call or a delegate chooses; with ``value``
PATH: Final = "$path"
VALUE: Final = "$value"
_FORMS: Final = {ERROR: {ERROR}, SEQUENCE: {SEQUENCE}, PATH: {PATH, VALUE}, VALUE: {VALUE}}


class CannedResultError(Exception):
    """A canned result has no usable form, or there is none; the message says what to write."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What becomes of a Call: ``value`` and, from a model, the index of the outcome that it chose."""

    value: Json
    chosen: int | None = None


@dataclass
class CannedResults:
    """Results by name: of a Tool (``charge``), a Call (``2:charge``) or an element (``2:charge[0]``); in front of each
    may stand the instance (``c1/2:charge``). The most particular name wins. A function gets the Call.
    """

    by_name: Mapping[str, Any]
    _counts: dict[str, int] = field(default_factory=dict)

    def answer(self, node: PlannedCall, call: Mapping[str, Any]) -> Answer:
        """The answer to a Call that has started.

        Raises:
            CallError: it fails. CannedResultError: there is no result for it.
        """
        name = next((n for n in names_of(node) if n in self.by_name), None)
        if name is None:
            raise CannedResultError(f"{call_name(node)} has no canned result; it is called with {shown_call(call)}")
        return self._read(name, self.by_name[name], node, call)

    def _read(self, name: str, result: Any, node: PlannedCall, call: Mapping[str, Any]) -> Answer:
        if callable(result):
            return _call_function(result, call)
        form = _form_of(name, result)
        if form == SEQUENCE:
            return self._read(name, self._next(name, result[SEQUENCE], node), node, call)
        if form == ERROR:
            raise _read_error(name, result[ERROR])
        if form == PATH:
            return Answer(result.get(VALUE), _outcome_index(name, result[PATH], node))
        return Answer(result[VALUE] if form == VALUE else result)

    def _next(self, name: str, results: Any, node: PlannedCall) -> Any:
        if not isinstance(results, list):
            raise CannedResultError(f"{name}: {SEQUENCE} is a list of results, not {type_name(results)}")
        at = self._counts[name] = self._counts.get(name, 0) + 1
        if at > len(results):
            raise CannedResultError(
                f"{name}: {SEQUENCE} has {len(results)} results, and {call_name(node)} needs one more"
            )
        return results[at - 1]


def names_of(node: PlannedCall) -> list[str]:
    """The names under which a Call's result may stand, the most particular first."""
    call = node.id if node.element is None else node.id.rpartition("[")[0]
    names = list(dict.fromkeys((node.id, call, node.tool.name)))
    return names if node.instance is None else [f"{node.instance}/{n}" for n in names] + names


def call_name(node: PlannedCall) -> str:
    """``2:charge`` or ``2:charge [c1]``"""
    return node.id if node.instance is None else f"{node.id} [{node.instance}]"


def shown_call(call: Mapping[str, Any]) -> str:
    """The parameters of a Call, shortened."""
    return brief({k: v for k, v in call.items() if not k.startswith("_")}, 200)


def unknown_names(by_name: Iterable[str], nodes: Iterable[PlannedCall], instances: Iterable[str]) -> list[str]:
    """The names of canned results that no Call of the plan can have."""
    listed = list(nodes)
    tools = {n.tool.name for n in listed}
    calls = {n.id for n in listed}
    prefixes = {"", *(f"{instance}/" for instance in instances)}

    def is_possible(name: str) -> bool:
        for prefix in prefixes:
            rest = name.removeprefix(prefix)
            call = rest.rpartition("[")[0] if rest.endswith("]") else rest
            if name.startswith(prefix) and (rest in tools or call in calls):
                return True
        return False

    return [name for name in by_name if not is_possible(name)]


def _form_of(name: str, result: Any) -> str | None:
    """The key that says what a result is; None for a plain value."""
    if not isinstance(result, dict) or not any(key.startswith("$") for key in result):
        return None
    form = next((key for key in _FORMS if key in result), None)
    if form is None or not set(result) <= _FORMS[form]:
        text = f"{name}: {brief(sorted(result))} are no keys of a canned result"
        raise CannedResultError(f"{text}; the forms are {format_choices(_FORMS)}, and {VALUE} holds any value as it is")
    return form


def _read_error(name: str, error: Any) -> CallError:
    if isinstance(error, str):
        return CallError(error, f"a canned failure of {name}")
    if (
        not isinstance(error, dict)
        or not isinstance(error.get("code"), str)
        or set(error) - {"code", "message", "details"}
    ):
        raise CannedResultError(f"{name}: {ERROR} is a code, or an object of code, message and details")
    return CallError(error["code"], str(error.get("message", f"a canned failure of {name}")), error.get("details"))


def _outcome_index(name: str, path: Any, node: PlannedCall) -> int:
    choices = node.outcome_texts
    wanted = "".join(str(path).split())
    for index, text in enumerate(choices):
        if "".join(text.split()).replace("†", "") == wanted.replace("†", ""):
            return index
    raise CannedResultError(f"{name}: {PATH} is {brief(path)}; {call_name(node)} can choose {format_choices(choices)}")


def _call_function(function: Callable[[dict[str, Any]], Any], call: Mapping[str, Any]) -> Answer:
    try:
        return Answer(function(dict(call)))
    except CallError:
        raise
    except Exception as error:
        # An ApplicationError's type is its code, as in a run
        code = getattr(error, "type", None) or type(error).__name__
        raise CallError(str(code), str(getattr(error, "message", None) or error)) from error
