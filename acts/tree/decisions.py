"""Pending approvals, people's decisions, the rule that matches one with the other, and who may decide. Pure.

An approval concerns a whole plan, one Call, the scopes that a Call requests, or what a person is to answer. A decision
applies to exactly one pending approval; ``workflowId``, ``instance`` and ``call`` select it. A decision that
matches none or several, or names another version of the plan, is refused with the reason, so that
nobody approves what they have not seen.

A tree may have *approvers*, each with public keys (Ed25519; ``docs/security.md`` has the forms). A worker reads them
when a root starts; from then on they belong to the tree, and every decision is signed. What is signed names the digest
of the *subject* (see ``subjects``) and a *challenge*, which the run that waits makes of its identity, the place and the
time: so a signature fits one wait of one run, cannot be sent again, and is void after a reset.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, StrictBool, ValidationError, model_validator

from acts.language import references
from acts.language.config import Approve, Person, Rule
from acts.language.errors import DecisionRefused, ExpressionError, Problem, SettingsError, format_choices, truncate
from acts.language.tools import Tool
from acts.language.values import ABSENT, Json, type_name
from acts.language.wire import ANSWER, APPROVE, EDIT, REJECT, REVOKE, UNDO
from acts.tree.wire_format import Record, RecordError, canonical_json, digest, first_error

WORDS: Final = (APPROVE, REJECT, EDIT, ANSWER, REVOKE, UNDO)
# The keys of a decision's record that an agent's context contains
DECISION_KEYS: Final = ("what", "call", "decision", "by", "reason")
MAX_TEXT_LENGTH: Final = 2_000  # characters of each text of a decision: results and the Web UI show them
MAX_MATCHES: Final = 100  # waits that an error looks for: ten thousand decisions may be refused in one task
# In a pending approval that has to be signed: {"challenge"}
SIGN: Final = "sign"
# … and what is decided, whole, where it is known: its digest is the ``subject``
CONTENT: Final = "content"
# … and how the Tools of what waits have changed since the plan was made, in words
TOOL_CHANGES: Final = "toolChanges"
# … and the Activity that answers the Call, and what it has in common with Calls that are approved like it
ACTIVITY, LIKE = "activity", "like"
# … and the JSON schema of what a person is to answer
FORM: Final = "form"
# … and the names and groups of those who decide, how many of them approve, who has, and to how many others it went
WHO, OF, APPROVALS, ESCALATED = "who", "of", "approvals", "escalated"
FORMAT: Final = "decision/2"
# What waits: a message that would change an approved plan
MESSAGE: Final = "message"
UNFILLED: Final = "…"  # in templates of decisions, where a person writes
# ``by`` of a decision that a deadline made
ENGINE: Final = "onTimeout"
# Characters of a subject's digest that commands show, and the fewest that a decision may give
SHORT_SUBJECT: Final = 16
# Approvers travel with the start of every run of the tree: some 100 bytes each
MAX_APPROVERS: Final = 100
MAX_KEYS: Final = 10
KEY_BYTES: Final = 32

# What tells a wait from all others: workflow id, what, call, instance, inner instance
WaitKey = tuple[str, str, str | None, str | None, str | None]
_Text = Annotated[str, Field(max_length=MAX_TEXT_LENGTH)]
_SignatureText = Annotated[str, Field(max_length=100)]


class PendingApproval(BaseModel, frozen=True, strict=True, extra="allow", populate_by_name=True):
    """One approval that awaits a decision. ``since`` and ``deadline`` are ISO dates in UTC.

    ``inner`` is the instance within the run, where the run itself works for an ``instance`` of its parent. Further keys
    are ``about`` what is decided: ``activity``, ``elements``, ``hints``, ``content``, ``changes``, ``sign``.
    """

    workflow_id: str = Field(alias="workflowId")
    what: str
    call: str | None = None
    instance: str | None = None
    inner: str | None = None
    version: int
    subject: str | None = None
    """The digest of what is decided (``subjects``)."""
    since: str
    deadline: str | None = None

    @property
    def about(self) -> dict[str, Any]:
        return {key: value for key, value in (self.model_extra or {}).items() if value is not None}

    @property
    def key(self) -> WaitKey:
        return (self.workflow_id, self.what, self.call, self.instance, self.inner)

    @property
    def tools(self) -> list[Any]:
        """What a Call is of, by names: its Tool, and what answers it."""
        tool = str(self.call).partition(":")[2]
        return [tool, self.about.get(ACTIVITY, tool)]

    def to_json(self) -> dict[str, Any]:
        """``{workflowId, what, call?, instance?, version, since, deadline?, …}``."""
        return self.model_dump(by_alias=True, exclude_none=True)

    @property
    def content(self) -> dict[str, Any] | None:
        """What is decided, if it is here whole: nobody vouches for what a run says but the digest."""
        content = self.about.get(CONTENT)
        return content if isinstance(content, dict) and digest(content) == self.subject else None

    def inside(self, instance: str | None) -> PendingApproval:
        """This approval as the parent reports it, when its run belongs to ``instance`` of the parent."""
        if instance is None or self.instance == instance:
            return self
        return self.model_copy(update={"instance": instance, "inner": self.inner or self.instance})

    def __str__(self) -> str:
        if self.what == MESSAGE:
            return f"a message to {self.workflow_id}"
        about = {"scopes": "the scopes of ", ANSWER: "the answer to "}.get(self.what, "")
        name = "the plan" if self.call is None else f"{about}{self.call}"
        return f"{name} of {self.workflow_id}" + (f" [{self.instance}]" if self.instance else "")


def _calls_of_message(value: Json) -> Json:
    return value["plan"] if isinstance(value, dict) and isinstance(value.get("plan"), list) else value


class Signature(BaseModel, frozen=True, strict=True, extra="forbid"):
    time: _SignatureText
    value: _SignatureText


def _check_condition(text: str) -> str:
    try:
        paths = references.paths(references.parse_condition(text))
    except ExpressionError as error:
        raise ValueError(f"when: {error}") from None
    if any(path.kind != "call" for path in paths):
        raise ValueError("when sees nothing but the call: †call.amount < 100")
    return text


def _check_date(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError('until is a date with its time zone: "2026-12-01T09:00:00Z"')
    return text


class Remember(BaseModel, frozen=True, strict=True, extra="forbid"):
    """Like Calls are approved, too: those of which ``when`` holds, so many of them, until then."""

    when: Annotated[str, Field(max_length=1_000), AfterValidator(_check_condition)] | None = None
    count: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    until: Annotated[str, Field(max_length=40), AfterValidator(_check_date)] | None = None


class Decision(BaseModel, frozen=True, strict=True, extra="forbid", populate_by_name=True):
    """A decision. ``calls`` is a whole new plan, ``call_with`` the new form of one Call, ``output`` a person's answer.

    ``remembered`` names what is revoked, or the decision by which the root approves.
    """

    decision: str
    call: _Text | None = None
    instance: _Text | None = None
    workflow_id: _Text | None = Field(None, alias="workflowId")
    version: int | None = None
    subject: Annotated[str, Field(min_length=SHORT_SUBJECT, max_length=64)] | None = None
    by: _Text | None = None
    reason: _Text | None = None
    calls: Annotated[list[Any], BeforeValidator(_calls_of_message)] | None = Field(None, alias="plan")
    call_with: dict[str, Any] | None = Field(None, alias="with")
    output: Any = ABSENT
    remember: Remember | None = None
    remembered: _Text | None = None
    signature: Signature | None = None

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        is_edit = self.decision == EDIT
        if self.decision == REJECT and not self.reason:
            raise ValueError('a rejection has a "reason": the planner, or the author of the plan, needs it')
        if not is_edit and (self.calls is not None or self.call_with is not None):
            raise ValueError(f'"plan" and "with" belong to the decision edit, not to {self.decision}')
        if (self.decision == ANSWER) is (self.output is ABSENT):
            raise ValueError('an answer has an "output", which fits the form; no other decision has one')
        if self.remember is not None and self.decision != APPROVE:
            raise ValueError('"remember" belongs to an approval of a Call')
        if self.decision == REVOKE and self.remembered is None:
            raise ValueError('to revoke names what: {"remembered": "1"}; the query status lists them')
        has_both = self.calls is not None and self.call is not None
        if is_edit and ((self.calls is None) == (self.call_with is None) or has_both):
            raise ValueError('an edit has either "plan", a list of Calls, or "call" and "with", the new form of one')
        if self.call_with is not None and not self.call:
            raise ValueError('an edit of one Call names it: {"call": "2:refund", "with": {…}}')
        return self

    @property
    def closes(self) -> bool:
        return self.decision not in (EDIT, REVOKE)

    def to_json(self) -> dict[str, Any]:
        output = {} if self.output is ABSENT else {"output": self.output}
        return self.model_dump(by_alias=True, exclude_none=True, exclude={"output"}) | output

    def record(self, wait: PendingApproval, date: str) -> dict[str, Any]:
        out = {
            "what": wait.what, "call": wait.call, "instance": wait.instance, "decision": self.decision,
            "version": wait.version, "subject": wait.subject, "by": self.by, "reason": self.reason, "date": date,
            "remember": self.remember and self.remember.model_dump(exclude_none=True), "remembered": self.remembered,
        }  # fmt: skip
        return {k: v for k, v in out.items() if v is not None}


def read_decision(raw: Json, word: str | None = None) -> Decision:
    """Read the JSON of a signal (``word`` is its name) or of the update; raise DecisionRefused if it is malformed."""
    fields = {} if raw is None and word == APPROVE else raw
    if not isinstance(fields, dict):
        raise DecisionRefused(f"a decision is an object, not {type_name(raw)}")
    decision = word or fields.get("decision")
    if decision not in WORDS or fields.get("decision") not in (None, decision):
        text = truncate(repr(fields.get("decision")), 60)
        raise DecisionRefused(f"decision is {text}; allowed: {', '.join(WORDS) if word is None else word}")
    if "remembered" in fields and decision != REVOKE:
        raise DecisionRefused("remembered is for the engine to say: it names the decision by which it approves")
    if fields.get("by") == ENGINE:
        raise DecisionRefused(f'"by" is "{ENGINE}" of what a deadline decides: say your own name')
    if gaps := [key for key in ("by", "reason", "output") if fields.get(key) == UNFILLED]:
        raise DecisionRefused(f'{format_choices(gaps)} is still "{UNFILLED}": put your own text in its place')
    reason = fields.get("reason") or fields.get("note")
    own = {key: value for key, value in fields.items() if key != "note"}
    try:
        return Decision.model_validate({**own, "decision": decision, "reason": reason})
    except ValidationError as error:
        raise DecisionRefused(f"a decision: {truncate(first_error(error), 300)}") from None


def match_decision(
    waits: Iterable[PendingApproval], decision: Decision, listed: Iterable[PendingApproval] | None = None
) -> PendingApproval:
    """The one pending approval that a decision applies to; an error lists some of ``listed``, else of ``waits``.

    Raises DecisionRefused when none matches, or several do, or the version differs.
    """
    waits = waits if listed is not None else list(waits)
    matches = list(islice((w for w in waits if is_for(w, decision)), MAX_MATCHES))
    if len(matches) > 1 and decision.subject is not None:
        matches = [w for w in matches if (w.subject or "").startswith(decision.subject)] or matches
    if decision.calls is not None and len({wait.workflow_id for wait in matches}) == 1:
        matches = matches[:1]  # whatever waits there is a part of the plan
    if not matches:
        keys = (("call", decision.call), ("instance", decision.instance), ("workflowId", decision.workflow_id))
        target = ", ".join(f"{key} {value!r}" for key, value in keys if value is not None) or "this decision"
        names = format_choices(map(str, islice(waits if listed is None else listed, MAX_MATCHES)))
        raise DecisionRefused(f"nothing that waits is matched by {target}; waiting: {names}")
    if len(matches) > 1:
        text = f"{len(matches)} waits are matched: {format_choices(map(str, matches))}"
        raise DecisionRefused(f"{text}; name one with call, instance, workflowId, subject")
    check_version(matches[0], decision)
    return matches[0]


def check_version(wait: PendingApproval, decision: Decision) -> None:
    if decision.version is not None and decision.version != wait.version:
        raise DecisionRefused(f"version {decision.version} is not what waits: {wait} is at version {wait.version}")
    if decision.subject is not None and not (wait.subject or "").startswith(decision.subject):
        text = (
            f"the subject {decision.subject} is not what waits: {wait} is about {(wait.subject or '')[:SHORT_SUBJECT]}"
        )
        raise DecisionRefused(f"{text}; look at it again: `acts pending`")


def is_for(wait: PendingApproval, decision: Decision) -> bool:
    """True when a decision means this wait, whatever version of it."""
    if decision.calls is not None and wait.instance is not None:
        return False  # a whole new plan is no decision about one instance
    # An edit may name one Call of a pending plan
    edits_plan = wait.what == "plan" and decision.decision == EDIT
    if decision.decision in (APPROVE, ANSWER) and (decision.decision == ANSWER) is not (wait.what == ANSWER):
        return False
    if decision.call not in (None, wait.call) and not edits_plan:
        return False
    if decision.workflow_id not in (None, wait.workflow_id):
        return False
    # A run inside an instance may not know its instance; the workflow id alone then identifies the run
    is_by_id = decision.workflow_id is not None and wait.instance is None
    return is_by_id or decision.instance in (None, wait.instance)


# -- who may decide -----------------------------------------------------------------------------------------------


def _read_public_key(text: str) -> str:
    """Return a public key as 32 bytes in base64; it may be given as PEM."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    data = b""
    with suppress(ValueError, UnsupportedAlgorithm):
        if "BEGIN" not in text:
            data = base64.b64decode(text.strip(), validate=True)
        elif isinstance(key := load_pem_public_key(text.encode()), Ed25519PublicKey):
            data = key.public_bytes_raw()
    if len(data) != KEY_BYTES:
        raise ValueError(f"a public key is Ed25519, as {KEY_BYTES} bytes in base64 or as PEM (`acts keygen`)")
    return base64.b64encode(data).decode()


_Keys = tuple[Annotated[str, AfterValidator(_read_public_key)], ...]


class Approver(Record):
    """One approver. ``keys`` are public keys of 32 bytes in base64.

    ``groups`` are names by which rules mean this one, too. ``tools`` (None: all) are names of what answers a Call: of
    its Activity, of a tool of an MCP server (``mcp.shop/refund``), else of the Tool. A Request may give an Activity any
    name.
    """

    name: str
    keys: Annotated[
        _Keys,
        BeforeValidator(lambda keys: [keys] if isinstance(keys, str) else keys),
        Field(min_length=1, max_length=MAX_KEYS),
    ]
    groups: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    plans: StrictBool = True

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.groups)

    def may_decide(self, tool: str | None) -> bool:
        """True for an approver who may decide about a Call that ``tool`` answers (None: about a plan)."""
        return self.plans if tool is None else self.tools is None or tool in self.tools


def read_approvers(content: Json) -> tuple[Approver, ...]:
    """Read the content of a file of approvers; raise SettingsError if it has another form."""
    if not isinstance(content, dict) or not content or len(content) > MAX_APPROVERS:
        raise SettingsError(f"approvers are an object of name to public key, with 1 to {MAX_APPROVERS} names")
    approvers = []
    for name, entry in content.items():
        try:
            fields = entry if isinstance(entry, dict) else {"keys": entry}
            approvers.append(Approver.from_json({**fields, "name": name}))
        except RecordError as error:
            raise SettingsError(f'the approver "{truncate(name, 80)}": {error}') from None
    keys = [key for approver in approvers for key in approver.keys]
    if len({*keys}) < len(keys):
        raise SettingsError("two approvers have the same public key, or one has it twice: who signs is one person")
    return tuple(approvers)


def who_problems(approve: Approve, tools: Iterable[Tool], approvers: Sequence[Approver]) -> list[Problem]:
    """The names in ``who`` that no approver and no group has: nobody could ever decide."""
    names = {name for approver in approvers for name in approver.names}
    settings: list[tuple[str, Rule | Person]] = [("a rule of config.approve", rule) for rule in approve.rules]
    settings += [(f'_person of "{tool.name}"', tool.person) for tool in tools if tool.person is not None]
    named = [(place, name) for place, part in settings for who in (part, *part.escalate) for name in who.who]
    hint = f"known: {format_choices(sorted(names))}"
    return [
        Problem("unknownApprover", f'{place} names "{name}", and no approver and no group is called so', "", hint=hint)
        for place, name in dict.fromkeys(named)
        if approvers and name not in names
    ]


def make_challenge(identity: str, reset: str | None, wait: PendingApproval) -> str:
    """The text that makes a signature fit this wait alone.

    ``identity`` is that of the run that waits, ``reset`` tells which reset of it was the last.
    """
    place = [identity, reset, wait.workflow_id, wait.what, wait.call, wait.instance, wait.since]
    return digest(place, 32)  # 128 bits tell all waits apart


def make_statement(wait: PendingApproval, decision: Decision, time: str) -> bytes:
    """What is signed. Raises KeyError for a wait that takes no signature."""
    sign = wait.about[SIGN]
    edit: Json = {"plan": decision.calls}
    if decision.call_with is not None:
        edit = {"call": decision.call, "with": decision.call_with}
    statement: dict[str, Any] = {
        "acts": FORMAT, "challenge": sign["challenge"], "subject": wait.subject, "workflowId": wait.workflow_id,
        "what": wait.what, "call": wait.call, "version": wait.version, "decision": decision.decision,
        "by": decision.by, "reason": decision.reason, "time": time,
        "edit": digest(edit) if decision.decision == EDIT else None,
        "output": digest(decision.output) if decision.decision == ANSWER else None,
        "remember": decision.remember and decision.remember.model_dump(exclude_none=True),
    }  # fmt: skip
    return canonical_json({key: value for key, value in statement.items() if value is not None})


def check_who(wait: PendingApproval, name: str, *groups: str) -> None:
    """Raise DecisionRefused where the rule of a wait names others than this person and these groups."""
    who = wait.about.get(WHO)
    if who and {name, *groups}.isdisjoint(who):
        raise DecisionRefused(f'"{name}" does not decide about {wait}: it is for {format_choices(who)}')


def check_signature(approvers: Sequence[Approver], wait: PendingApproval, decision: Decision) -> dict[str, Any]:
    """Who signed, for the record of a decision: ``{key, time, signature, challenge}``.

    Raises DecisionRefused when nobody who may decide has signed this decision about this wait.
    """
    names = f"approvers: {format_choices(approver.name for approver in approvers)}"
    if decision.signature is None:
        raise DecisionRefused(f"a decision about {wait} has to be signed; {names}; sign with: acts approve --key FILE")
    approver = next((a for a in approvers if a.name == decision.by), None)
    if approver is None:
        raise DecisionRefused(f'"by" is {decision.by!r}, who is no approver of this run; {names}')
    check_who(wait, *approver.names)
    tool = None if wait.call is None or decision.decision == UNDO else wait.tools[1]  # it ends the plan, and undoes all
    if not approver.may_decide(tool):
        text = "whole plans" if tool is None else f'calls that "{tool}" answers'
        raise DecisionRefused(f'the approver "{approver.name}" may not decide about {text}')
    if decision.version is None or decision.subject is None:
        raise DecisionRefused(f"a signed decision names the version and the subject of what it is about: {wait}")
    time, value = decision.signature.time, decision.signature.value
    message = make_statement(wait, decision, time)
    key = next((key for key in map(base64.b64decode, approver.keys) if _holds(key, value, message)), None)
    if key is None:
        raise DecisionRefused(
            f'the signature does not hold: no key of "{approver.name}" has signed this decision about version '
            f"{wait.version} of {wait}, as it waits since {wait.since}"
        )
    return {"key": fingerprint(key), "time": time, "signature": value, "challenge": wait.about[SIGN]["challenge"]}


def _holds(key: bytes, signature: str, message: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(base64.b64decode(signature, validate=True), message)
    except (InvalidSignature, ValueError):  # no signature, or no base64
        return False
    return True


def fingerprint(key: bytes) -> str:
    """A short name of a public key: the beginning of its SHA-256."""
    return hashlib.sha256(key).hexdigest()[:16]
