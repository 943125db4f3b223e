"""Decisions of people: what waits for one, what one says, which wait it is for.

A wait is for a whole plan, for a Call, or for the scopes that a Call asks for. A decision
reaches the one wait that it matches: ``workflowId``, ``instance`` and ``call`` narrow it.
One that matches none, or several, or names another version of the plan than the one that
waits, is refused with the reason, so that nobody approves what they have not seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import DecisionRefused, format_choices, truncate
from acts.language.values import Json, type_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


APPROVE: Final = "approve"
REJECT: Final = "reject"
EDIT: Final = "edit"
WORDS: Final = (APPROVE, REJECT, EDIT)
_TEXTS: Final = ("call", "instance", "workflowId", "by", "reason", "note")
_KEYS: Final = ("decision", "call", "plan", "with", "version", "workflowId", "instance", "by", "reason", "note")
# What of a decision an agent's context has
DECIDED: Final = ("what", "call", "decision", "by", "reason")
# Who and why stand in results and in the Web UI
MAX_WORDS: Final = 2_000
# Beside a wait or a decision in a run that works for an instance: the instance that it has there
INNER: Final = "inner"


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """Something that waits for a decision. ``since`` and ``deadline`` are ISO dates in UTC."""

    workflow_id: str
    what: str
    version: int
    since: str
    call: str | None = None
    instance: str | None = None
    deadline: str | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """``{workflowId, what, call?, instance?, version, since, deadline?, …}``."""
        out = {
            "workflowId": self.workflow_id, "what": self.what, "call": self.call, "instance": self.instance,
            "version": self.version, "since": self.since, "deadline": self.deadline,
        }  # fmt: skip
        return {k: v for k, v in out.items() if v is not None} | dict(self.about)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PendingApproval:
        """What ``to_json`` gave.

        Raises:
            KeyError, TypeError: it is something else.
        """
        texts = [data["workflowId"], data["what"], data["since"]]
        optional = [data.get("call"), data.get("instance"), data.get("deadline"), data.get(INNER)]
        texts += [text for text in optional if text is not None]
        if type(data["version"]) is not int or not all(isinstance(text, str) for text in texts):
            raise TypeError("a pending approval has texts, and a number as its version")
        named = ("workflowId", "what", "call", "instance", "version", "since", "deadline")
        about = {k: v for k, v in data.items() if k not in named}
        return cls(
            data["workflowId"], data["what"], data["version"], data["since"], data.get("call"), data.get("instance"),
            data.get("deadline"), about,
        )  # fmt: skip

    def inside(self, instance: str | None) -> PendingApproval:
        """The wait as it is seen from above, where the run that it is in works for an instance.

        The instance that it has there, if that is another one, is ``inner`` from here on.
        """
        if instance is None or self.instance == instance:
            return self
        inner = self.about.get(INNER, self.instance)
        return replace(self, instance=instance, about=self.about if inner is None else {**self.about, INNER: inner})

    def __str__(self) -> str:
        """For messages: what, and where."""
        name = "the plan" if self.call is None else f"{'the scopes of ' if self.what == 'scopes' else ''}{self.call}"
        return f"{name} of {self.workflow_id}" + (f" [{self.instance}]" if self.instance else "")


@dataclass(frozen=True, slots=True)
class Decision:
    """What somebody decided. ``calls`` is a whole new plan, ``call_with`` the new form of one Call."""

    decision: str
    call: str | None = None
    instance: str | None = None
    workflow_id: str | None = None
    version: int | None = None
    by: str | None = None
    reason: str | None = None
    calls: tuple[Json, ...] | None = None
    call_with: Json = None
    raw: Mapping[str, Any] = field(default_factory=dict)

    def record(self, wait: PendingApproval, date: str) -> dict[str, Any]:
        """Who decided what, when and why: ``{what, call?, decision, version, by?, reason?, date}``."""
        out = {
            "what": wait.what, "call": wait.call, "instance": wait.instance, "decision": self.decision,
            "version": wait.version, "by": self.by, "reason": self.reason, "date": date,
        }  # fmt: skip
        return {k: v for k, v in out.items() if v is not None}


def read_decision(raw: Json, word: str | None = None) -> Decision:
    """A decision from the JSON of a signal (``word`` is its name) or of the update.

    Raises:
        Refused: it is none; what was found and what is allowed.
    """
    if raw is None and word == APPROVE:
        raw = {}
    if not isinstance(raw, dict):
        raise DecisionRefused(f"a decision is an object, not {type_name(raw)}")
    unknown = [k for k in raw if k not in _KEYS]
    if unknown:
        raise DecisionRefused(f"unknown key {format_choices(unknown)}; a decision has: {', '.join(_KEYS)}")
    decision = word or raw.get("decision")
    if raw.get("decision") not in (None, decision):
        raise DecisionRefused(
            f"the signal {word} says {truncate(repr(raw['decision']), 60)}: send the signal of that name"
        )
    if decision not in WORDS:
        raise DecisionRefused(f"decision is {truncate(repr(decision), 60)}; allowed: {', '.join(WORDS)}")
    for key in _TEXTS:
        if raw.get(key) is not None and (not isinstance(raw[key], str) or len(raw[key]) > MAX_WORDS):
            raise DecisionRefused(f'"{key}" is a string of at most {MAX_WORDS} characters, not {type_name(raw[key])}')
    version = raw.get("version")
    if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
        raise DecisionRefused(f'"version" is a number, not {type_name(version)}')
    reason = raw.get("reason") or raw.get("note")
    if decision == REJECT and not reason:
        raise DecisionRefused('a rejection has a "reason": it is what the planner, or whoever wrote the plan, goes by')
    calls, with_ = _edited(raw, decision)
    return Decision(
        str(decision), raw.get("call"), raw.get("instance"), raw.get("workflowId"), version, raw.get("by"), reason,
        calls, with_, raw,
    )  # fmt: skip


def _edited(raw: Mapping[str, Any], decision: str) -> tuple[tuple[Json, ...] | None, Json]:
    plan, with_ = raw.get("plan"), raw.get("with")
    if decision != EDIT:
        if plan is not None or with_ is not None:
            raise DecisionRefused(f'"plan" and "with" belong to the decision edit, not to {decision}')
        return None, None
    if isinstance(plan, dict) and isinstance(plan.get("plan"), list):
        plan = plan["plan"]  # the plan message, as the query gives it or a file holds it
    if (plan is None) == (with_ is None):
        raise DecisionRefused(
            'an edit has either "plan", a list of Calls, or "call" and "with", the new form of one Call'
        )
    if plan is not None:
        if not isinstance(plan, list):
            raise DecisionRefused(f'"plan" is a list of Calls, not {type_name(plan)}')
        return tuple(plan), None
    if not isinstance(with_, dict):
        raise DecisionRefused(f'"with" is a Call, not {type_name(with_)}')
    if not raw.get("call"):
        raise DecisionRefused('an edit of one Call names it: {"call": "2:refund", "with": {…}}')
    return None, with_


def match_decision(waits: Sequence[PendingApproval], decision: Decision) -> PendingApproval:
    """The one wait that a decision is for.

    Raises:
        Refused: there is none, or there are several, or it is for another version.
    """
    found = [w for w in waits if _is_for(w, decision)]
    if not found:
        listed = format_choices(str(w) for w in waits)
        raise DecisionRefused(f"nothing that waits is matched by {_named(decision)}; waiting: {listed}")
    if len(found) > 1:
        raise DecisionRefused(
            f"{len(found)} waits are matched: {format_choices(map(str, found))}; "
            "name one with call, instance, workflowId"
        )
    check_version(found[0], decision)
    return found[0]


def check_version(wait: PendingApproval, decision: Decision) -> None:
    """Raise DecisionRefused for a decision about another version than the one that waits."""
    if decision.version is not None and decision.version != wait.version:
        raise DecisionRefused(f"version {decision.version} is not what waits: {wait} is at version {wait.version}")


def _is_for(wait: PendingApproval, decision: Decision) -> bool:
    if decision.calls is not None and wait.call is not None and decision.call is None:
        return False  # a whole plan does not answer a question about one Call
    one = (
        None if wait.what == "plan" and decision.decision == EDIT else decision.call
    )  # one Call of the plan that waits
    wanted = ((one, wait.call), (decision.instance, wait.instance), (decision.workflow_id, wait.workflow_id))
    # A run within an instance does not always know that it is: the one that names it by its id means it
    named = decision.workflow_id == wait.workflow_id and wait.instance is None
    skipped = decision.instance if named else None
    return all(given is None or given == held or (given is skipped and held is None) for given, held in wanted)


def _named(decision: Decision) -> str:
    parts = (("call", decision.call), ("instance", decision.instance), ("workflowId", decision.workflow_id))
    return ", ".join(f"{key} {value!r}" for key, value in parts if value is not None) or "this decision"
