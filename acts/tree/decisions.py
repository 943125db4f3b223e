"""Pending approvals, people's decisions, and the rule that matches one with the other. Pure.

An approval concerns a whole plan, one Call, or the scopes that a Call requests. A decision applies
to exactly one pending approval; ``workflowId``, ``instance`` and ``call`` select it. A decision that
matches none or several, or names another version of the plan, is refused with the reason, so that
nobody approves what they have not seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import DecisionRefused, format_choices, truncate
from acts.language.values import Json, type_name
from acts.language.wire import APPROVE, EDIT, REJECT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


WORDS: Final = (APPROVE, REJECT, EDIT)
_TEXTS: Final = ("call", "instance", "workflowId", "by", "reason", "note")
_KEYS: Final = (
    "decision", "call", "plan", "with", "version", "workflowId", "instance", "by", "reason", "note", "signature",
)  # fmt: skip
# A signature: when it was made, and its 64 bytes in base64
_SIGNATURE_KEYS: Final = ("time", "value")
_MAX_SIGNATURE_TEXT: Final = 100
# The keys of a decision's record that an agent's context contains
DECISION_KEYS: Final = ("what", "call", "decision", "by", "reason")
# Characters of each text of a decision: results and the Web UI show them
MAX_TEXT_LENGTH: Final = 2_000
# Waits of which an error lists a few. More are not looked for: ten thousand decisions may be refused in one task
MAX_MATCHES: Final = 100
LISTED_WAITS: Final = 12
# In a pending approval or a record from a run inside an instance: the instance within that run, if it differs
INNER: Final = "inner"


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """One approval that awaits a decision. ``since`` and ``deadline`` are ISO dates in UTC."""

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
        """The inverse of ``to_json``.

        Raises:
            KeyError, TypeError: ``data`` has another form.
        """
        texts = [data["workflowId"], data["what"], data["since"]]
        optional = [data.get("call"), data.get("instance"), data.get("deadline"), data.get(INNER)]
        texts += [text for text in optional if text is not None]
        if type(data["version"]) is not int or not all(isinstance(text, str) for text in texts):
            raise TypeError("a pending approval has texts, and a number as its version")
        own_keys = ("workflowId", "what", "call", "instance", "version", "since", "deadline")
        about = {k: v for k, v in data.items() if k not in own_keys}
        return cls(
            data["workflowId"], data["what"], data["version"], data["since"], data.get("call"), data.get("instance"),
            data.get("deadline"), about,
        )  # fmt: skip

    def inside(self, instance: str | None) -> PendingApproval:
        """This approval as the parent reports it, when its run belongs to ``instance`` of the parent.

        An instance within that run is kept as ``inner``.
        """
        if instance is None or self.instance == instance:
            return self
        inner = self.about.get(INNER, self.instance)
        return replace(self, instance=instance, about=self.about if inner is None else {**self.about, INNER: inner})

    def __str__(self) -> str:
        """The subject and the run, for messages."""
        name = "the plan" if self.call is None else f"{'the scopes of ' if self.what == 'scopes' else ''}{self.call}"
        return f"{name} of {self.workflow_id}" + (f" [{self.instance}]" if self.instance else "")


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision. ``calls`` is a whole new plan, ``call_with`` the new form of one Call."""

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
    signature: Mapping[str, str] | None = None

    def record(self, wait: PendingApproval, date: str) -> dict[str, Any]:
        """The decision as recorded: ``{what, call?, decision, version, by?, reason?, date}``."""
        out = {
            "what": wait.what, "call": wait.call, "instance": wait.instance, "decision": self.decision,
            "version": wait.version, "by": self.by, "reason": self.reason, "date": date,
        }  # fmt: skip
        return {k: v for k, v in out.items() if v is not None}


def read_decision(raw: Json, word: str | None = None) -> Decision:
    """A decision from the JSON of a signal (``word`` is its name) or of the update.

    Raises:
        DecisionRefused: it is malformed.
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
        if raw.get(key) is not None and (not isinstance(raw[key], str) or len(raw[key]) > MAX_TEXT_LENGTH):
            raise DecisionRefused(
                f'"{key}" is a string of at most {MAX_TEXT_LENGTH} characters, not {type_name(raw[key])}'
            )
    version = raw.get("version")
    if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
        raise DecisionRefused(f'"version" is a number, not {type_name(version)}')
    reason = raw.get("reason") or raw.get("note")
    if decision == REJECT and not reason:
        raise DecisionRefused('a rejection has a "reason": the planner, or the author of the plan, needs it')
    calls, with_ = _edited(raw, decision)
    return Decision(
        str(decision), raw.get("call"), raw.get("instance"), raw.get("workflowId"), version, raw.get("by"), reason,
        calls, with_, raw, _signature(raw.get("signature")),
    )  # fmt: skip


def _signature(value: Json) -> Mapping[str, str] | None:
    if value is None:
        return None
    texts = [value.get(key) for key in _SIGNATURE_KEYS] if isinstance(value, dict) else []
    if not texts or not all(isinstance(text, str) and len(text) <= _MAX_SIGNATURE_TEXT for text in texts):
        raise DecisionRefused('"signature" is {"time": ISO date, "value": base64 of the signature}')
    return {key: str(value[key]) for key in _SIGNATURE_KEYS}


def _edited(raw: Mapping[str, Any], decision: str) -> tuple[tuple[Json, ...] | None, Json]:
    plan, with_ = raw.get("plan"), raw.get("with")
    if decision != EDIT:
        if plan is not None or with_ is not None:
            raise DecisionRefused(f'"plan" and "with" belong to the decision edit, not to {decision}')
        return None, None
    if isinstance(plan, dict) and isinstance(plan.get("plan"), list):
        plan = plan["plan"]  # a plan message, as in the query's answer or in a file
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


def match_decision(
    waits: Iterable[PendingApproval], decision: Decision, listed: Callable[[], str] | None = None
) -> PendingApproval:
    """The one pending approval that a decision applies to.

    ``listed`` gives the text that lists what waits, where ``waits`` are only those that may match (see ``list_waits``).

    Raises:
        DecisionRefused: none matches, or several do, or the version differs.
    """
    waits = waits if listed is not None else list(waits)
    matches = list(islice((w for w in waits if is_for(w, decision)), MAX_MATCHES + 1))
    if not matches:
        text = list_waits(waits) if listed is None else listed()
        raise DecisionRefused(f"nothing that waits is matched by {_describe(decision)}; waiting: {text}")
    if len(matches) > 1:
        text = f"{len(matches)} waits are matched: {format_choices(map(str, matches))}"
        if len(matches) > MAX_MATCHES:
            text = f"more than {MAX_MATCHES} waits are matched: {format_choices(map(str, matches[:LISTED_WAITS]))}, …"
        raise DecisionRefused(f"{text}; name one with call, instance, workflowId")
    check_version(matches[0], decision)
    return matches[0]


def check_version(wait: PendingApproval, decision: Decision) -> None:
    """Raise DecisionRefused for a decision about another version than the pending one."""
    if decision.version is not None and decision.version != wait.version:
        raise DecisionRefused(f"version {decision.version} is not what waits: {wait} is at version {wait.version}")


def list_waits(waits: Iterable[PendingApproval], count: int | None = None) -> str:
    """What waits, as a list of a few names; ``count`` is how many wait, where ``waits`` are not all."""
    names = [str(wait) for wait in islice(waits, MAX_MATCHES)]
    if count is None or count <= len(names):
        return format_choices(names)
    return f"{', '.join(sorted(names)[:LISTED_WAITS])}, … ({count} in all)"


def is_for(wait: PendingApproval, decision: Decision) -> bool:
    """True when a decision means this wait, whatever version of it."""
    if decision.calls is not None and wait.call is not None and decision.call is None:
        return False  # a whole new plan is no decision about one Call
    # An edit may name one Call of a pending plan
    edits_plan = wait.what == "plan" and decision.decision == EDIT
    if decision.call not in (None, wait.call) and not edits_plan:
        return False
    if decision.workflow_id not in (None, wait.workflow_id):
        return False
    # A run inside an instance may not know its instance; the workflow id alone then identifies the run
    is_by_id = decision.workflow_id is not None and wait.instance is None
    return is_by_id or decision.instance in (None, wait.instance)


def _describe(decision: Decision) -> str:
    parts = (("call", decision.call), ("instance", decision.instance), ("workflowId", decision.workflow_id))
    return ", ".join(f"{key} {value!r}" for key, value in parts if value is not None) or "this decision"
