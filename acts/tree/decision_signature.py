"""Signed decisions: what an approver signs, and whether a signature holds. Pure: Ed25519 has no randomness.

What is signed is the *statement*: canonical JSON (sorted keys, no spaces, UTF-8) of

    {"acts": "decision/1", "challenge", "subject", "workflowId", "what", "call"?, "version",
     "decision", "by", "reason"?, "edit"?, "time"}

``subject`` is the SHA-256 of what is decided about, as JSON: the Calls of the plan, or the Call with its parameters.
``challenge`` is made by the run that waits, of its identity, the place in its plan, the instance and the time since
which it waits: so a signature fits one wait of one run, and cannot be sent again. ``edit`` is the SHA-256 of the new
plan or Call.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import DecisionRefused
from acts.language.values import Json
from acts.tree.approvers import Approver, approver_names

if TYPE_CHECKING:
    from acts.tree.decisions import Decision, PendingApproval

# The key of a pending approval that has to be signed: {"challenge", "subject"}
SIGN: Final = "sign"
FORMAT: Final = "decision/1"
# Hex digits: 128 bits tell all waits apart, 256 bits stand for their content
_CHALLENGE_CHARACTERS: Final = 32
_FINGERPRINT_CHARACTERS: Final = 16


def canonical_json(value: Json) -> bytes:
    """The one form of a value that is hashed and signed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass")


def digest(value: Json) -> str:
    """SHA-256 of a value, as hex."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def call_subject(call: Mapping[str, Json]) -> dict[str, Json]:
    """What an approver of a Call sees of it: all but its ``_id``."""
    return {key: value for key, value in call.items() if key != "_id"}


def make_challenge(identity: str, wait: PendingApproval) -> str:
    """The text that makes a signature fit this wait alone. ``identity`` is that of the run that waits."""
    place = [identity, wait.workflow_id, wait.what, wait.call, wait.instance, wait.since]
    return digest(place)[:_CHALLENGE_CHARACTERS]


def make_statement(wait: PendingApproval, decision: Decision, time: str) -> bytes:
    """What is signed. Raises KeyError for a wait that takes no signature."""
    sign = wait.about[SIGN]
    statement: dict[str, Any] = {
        "acts": FORMAT, "challenge": sign["challenge"], "subject": sign["subject"], "workflowId": wait.workflow_id,
        "what": wait.what, "call": wait.call, "version": wait.version, "decision": decision.decision,
        "by": decision.by, "reason": decision.reason, "edit": _edit_digest(decision), "time": time,
    }  # fmt: skip
    return canonical_json({key: value for key, value in statement.items() if value is not None})


def _edit_digest(decision: Decision) -> str | None:
    if decision.calls is not None:
        return digest({"plan": list(decision.calls)})
    return None if decision.call_with is None else digest({"call": decision.call, "with": decision.call_with})


def check_signature(approvers: Sequence[Approver], wait: PendingApproval, decision: Decision) -> dict[str, Any]:
    """Who signed, for the record of a decision: ``{key, time, signature, challenge, subject}``.

    Raises:
        DecisionRefused: nobody who may decide has signed this decision about this wait.
    """
    known = f"approvers: {approver_names(approvers)}"
    if decision.signature is None:
        raise DecisionRefused(f"a decision about {wait} has to be signed; {known}; sign with: acts approve --key FILE")
    approver = next((a for a in approvers if a.name == decision.by), None)
    if approver is None:
        raise DecisionRefused(f'"by" is {decision.by!r}, who is no approver of this run; {known}')
    tool = None if wait.call is None else wait.call.partition(":")[2]
    if not approver.may_decide(tool):
        text = "whole plans" if tool is None else f'calls of the tool "{tool}"'
        raise DecisionRefused(f'the approver "{approver.name}" may not decide about {text}')
    time, value = decision.signature["time"], decision.signature["value"]
    message = make_statement(wait, decision, time)
    try:
        signature = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        signature = b""
    key = next((key for key in approver.keys if _holds(base64.b64decode(key), signature, message)), None)
    if key is None:
        raise DecisionRefused(
            f'the signature does not hold: no key of "{approver.name}" has signed this decision about version '
            f"{wait.version} of {wait}, as it waits since {wait.since}"
        )
    sign = {name: wait.about[SIGN][name] for name in ("challenge", "subject")}
    return {"key": fingerprint(base64.b64decode(key)), "time": time, "signature": value, **sign}


def _holds(key: bytes, signature: bytes, message: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def fingerprint(key: bytes) -> str:
    """A short name of a public key: the beginning of its SHA-256."""
    return hashlib.sha256(key).hexdigest()[:_FINGERPRINT_CHARACTERS]
