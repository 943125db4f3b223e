"""Signed decisions: who may decide where a tree has approvers, and that a signature fits one decision of one wait."""

from __future__ import annotations

import base64
import copy
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import assume, given
from hypothesis import strategies as st

from acts.cli.commands.operations import create_key
from acts.client.client_errors import ClientError
from acts.client.run_decisions import read_signing_key
from acts.language.config import Approve
from acts.language.errors import DecisionRefused, SettingsError
from acts.machines.approvals import Approvals
from acts.machines.commands import Decided
from acts.tree.decisions import (
    SIGN,
    Approver,
    Decision,
    PendingApproval,
    check_signature,
    fingerprint,
    make_statement,
    read_approvers,
    read_decision,
)
from acts.tree.records import TreePosition
from acts.tree.wire_format import digest

Json = Any
ADA, BOB, OLD = map(Ed25519PrivateKey.from_private_bytes, (bytes(32), b"b" * 32, b"o" * 32))
NOW = "2026-01-31T12:00:00.000Z"


def public(key: Ed25519PrivateKey) -> str:
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


APPROVERS = read_approvers(
    {"ada": [public(OLD), public(ADA)], "bob": {"keys": public(BOB), "tools": ["refund"], "plans": False}}
)
POSITION = TreePosition(identity="run/1", approvers=APPROVERS)
WAIT = PendingApproval.model_validate(
    {
        "workflowId": "run", "what": "call", "version": 1, "since": NOW, "call": "2:refund", "instance": "A",
        "subject": digest({"amount": 5}), SIGN: {"challenge": "c" * 32},
    }
)  # fmt: skip


def sign(wait: PendingApproval, raw: Json, key: Ed25519PrivateKey = ADA, time: str = NOW) -> Json:
    raw = {"version": wait.version, "subject": wait.subject, **raw}
    value = key.sign(make_statement(wait, read_decision(raw), time))
    return {**raw, "signature": {"time": time, "value": base64.b64encode(value).decode()}}


def changed(**fields: Json) -> PendingApproval:
    return WAIT.model_copy(update=fields)


words = st.sampled_from(
    [
        {"decision": "approve", "by": "ada"},
        {"decision": "approve", "by": "ada", "note": "fine"},
        {"decision": "reject", "by": "ada", "reason": "no"},
        {"decision": "edit", "by": "ada", "call": "2:refund", "with": {"_tool": "refund", "amount": 4}},
        {"decision": "edit", "by": "ada", "plan": [{"_tool": "refund"}]},
    ]
)
texts = st.text(max_size=8)
# What an attacker may change about a wait, or about the decision
OTHER_WAITS = st.sampled_from(
    [
        changed(workflow_id="other"), changed(version=2), changed(call="3:refund"),
        changed(what="scopes"), changed(**{SIGN: {**WAIT.about[SIGN], "challenge": "d" * 32}}),
        changed(subject=digest({"amount": 6})),
    ]
)  # fmt: skip


@given(words)
def test_what_an_approver_has_signed_holds_and_the_record_can_be_checked_again(raw: Json) -> None:
    signed = sign(WAIT, raw)
    record = check_signature(APPROVERS, WAIT, read_decision(signed))
    assert record["key"] == fingerprint(ADA.public_key().public_bytes_raw())
    assert record == {**record, "time": NOW, "signature": signed["signature"]["value"], **WAIT.about[SIGN]}


@given(words, OTHER_WAITS)
def test_a_signature_fits_no_other_wait(raw: Json, other: PendingApproval) -> None:
    with pytest.raises(DecisionRefused, match="does not hold"):
        check_signature(APPROVERS, other, read_decision(sign(WAIT, raw)))


@given(words, words, texts)
def test_a_signature_fits_no_other_decision(raw: Json, other: Json, text: str) -> None:
    assume(other != raw)
    signed = sign(WAIT, raw)
    for other_raw in (
        {**signed, **dict.fromkeys(("with", "plan", "call", "reason", "note")), **other},
        {**signed, "reason": f"{text}!"},
        {**signed, "signature": {**signed["signature"], "time": f"{NOW}{text}!"}},
    ):
        with pytest.raises(DecisionRefused, match="does not hold"):
            check_signature(APPROVERS, WAIT, read_decision(other_raw))


@given(st.binary(max_size=70))
def test_no_other_bytes_are_a_signature(value: bytes) -> None:
    raw = {"decision": "approve", "by": "ada", "version": WAIT.version, "subject": WAIT.subject}
    forged = {**raw, "signature": {"time": NOW, "value": base64.b64encode(value).decode()}}
    with pytest.raises(DecisionRefused, match="does not hold"):
        check_signature(APPROVERS, WAIT, read_decision(forged))


@pytest.mark.parametrize(
    ("wait", "raw", "key", "says"),
    [
        (WAIT, {"by": "ada"}, None, "approvers: ada, bob; sign with: acts approve --by NAME --key FILE"),
        (WAIT, {"by": "eve"}, ADA, "'eve', who is no approver of this run; approvers: ada, bob; --by NAME"),
        (WAIT, {}, ADA, "None, who is no approver"),
        (WAIT, {"by": "bob"}, ADA, 'no key of "bob" has signed'),
        (changed(call="2:pay"), {"by": "bob"}, BOB, 'may not decide about calls that "pay" answers'),
        (changed(activity="bank.wire"), {"by": "bob"}, BOB, 'may not decide about calls that "bank.wire" answers'),
        (changed(call=None, what="plan"), {"by": "bob"}, BOB, "may not decide about whole plans"),
    ],
)
def test_who_may_not_decide_is_told_why(
    wait: PendingApproval, raw: Json, key: Ed25519PrivateKey | None, says: str
) -> None:
    raw = {"decision": "approve", **raw}
    decision = read_decision(raw if key is None else sign(wait, raw, key))
    with pytest.raises(DecisionRefused, match=says):
        check_signature(APPROVERS, wait, decision)


def opened(position: TreePosition = POSITION, own: str = "run", since: str = NOW, **settings: Json) -> Approvals:
    approvals = Approvals(own, position, lambda *_: None)
    approvals.open("call", 1, Approve(**settings).all_rules[-1], since, call="2:refund", subject={"amount": 5})
    approvals.flush()
    return approvals


def decided(effects: list[Any]) -> list[str]:
    return [e.decision.decision for e in effects if isinstance(e, Decided)]


def test_a_run_with_approvers_takes_signed_decisions_only_and_records_who_signed() -> None:
    approvals = opened()
    (wait,) = approvals.pending
    assert decided(approvals.decide({"by": "ada"}, "approve", NOW)) == []
    raw = {"decision": "approve", "by": "ada", "call": "2:refund", "version": 1}
    with pytest.raises(DecisionRefused, match="has to be signed"):
        approvals.judge(raw)
    with pytest.raises(DecisionRefused, match="names the version and the subject"):
        approvals.judge(sign(wait, {**raw, "subject": None}))
    approvals.judge(sign(wait, raw))
    assert decided(approvals.decide(sign(wait, raw), None, NOW, update="u")) == ["approve"]
    (record,) = approvals.records
    assert (record["by"], record["signed"]["key"]) == ("ada", fingerprint(ADA.public_key().public_bytes_raw()))


def test_a_signature_cannot_be_sent_again() -> None:
    (wait,) = opened().pending
    signed = sign(wait, {"decision": "approve", "by": "ada"})
    for other in (
        opened(TreePosition(identity="run/2", approvers=APPROVERS)),
        opened(own="run/x"),
        opened(since="2026-01-31T12:00:01.000Z"),
    ):
        assert decided(other.decide(signed, None, NOW, update="u")) == []
    assert decided(opened().decide(signed, None, NOW, update="u")) == ["approve"]


def test_an_edit_changes_what_is_signed() -> None:
    approvals = opened()
    (before,) = approvals.pending
    approvals.open("call", 2, Approve().all_rules[-1], NOW, call="2:refund", subject={"amount": 6})
    (after,) = approvals.pending
    assert (after.version, after.subject) == (2, digest({"amount": 6}))
    raw = {"decision": "approve", "by": "ada"}
    assert decided(approvals.decide(sign(before, raw), None, NOW, update="u")) == []
    assert decided(approvals.decide(sign(after, raw), None, NOW, update="v")) == ["approve"]


@pytest.mark.parametrize(("word", "becomes"), [("approve", "reject"), ("reject", "reject"), ("fail", "fail")])
def test_a_deadline_never_approves_in_the_place_of_an_approver(word: str, becomes: str) -> None:
    signed, plain = (opened(p, timeout=10, onTimeout=word) for p in (POSITION, TreePosition(identity="run/1")))
    timer = f"('call', '2:refund', None) {signed.pending[0].deadline}"
    assert decided(signed.on_timer(timer, NOW)) == [becomes]
    assert decided(plain.on_timer(timer, NOW)) == [word]


def test_without_self_approval_only_another_person_approves() -> None:
    approvals = opened(TreePosition(identity="run/1"), selfApproval=False, timeout=10, onTimeout="approve")
    edit = {"decision": "edit", "call": "2:refund", "with": {"_tool": "refund"}}

    def takes(raw: Json, **more: str) -> bool:
        return bool(decided(approvals.decide({**raw, **more}, None, NOW, update="u")))

    assert not takes(edit), "nobody has edited it"
    assert takes(edit, by="ann")
    assert not takes({"decision": "approve"})
    assert not takes({"decision": "approve"}, by="ann")
    late = copy.deepcopy(approvals)
    assert decided(late.on_timer(f"('call', '2:refund', None) {late.pending[0].deadline}", NOW)) == ["reject"]
    assert takes({"decision": "approve"}, by="bob")


def test_keys_are_read_in_base64_and_in_pem() -> None:
    pem = ADA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    assert read_approvers({"ada": pem.decode()}) == read_approvers({"ada": {"keys": [public(ADA)]}})
    assert read_approvers({"ada": public(ADA)}) == (Approver(name="ada", keys=(public(ADA),)),)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([], "object of name to public key"),
        ({}, "1 to 100 names"),
        ({"ada": "AAAA"}, 'the approver "ada": .* a public key is Ed25519'),
        ({"ada": "-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----"}, "Ed25519"),
        ({"ada": []}, "keys: .* at least 1 item"),
        ({"ada": {"key": public(ADA)}}, "keys: Field required"),
        ({"ada": {"keys": public(ADA), "tools": "refund"}}, "tools: "),
        ({"ada": {"keys": public(ADA), "plans": 1}}, "plans: "),
        ({"ada": public(ADA), "boss": public(ADA)}, "two approvers have the same public key"),
    ],
)
def test_approvers_that_cannot_be_used_are_named(content: Json, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        read_approvers(content)


@pytest.mark.parametrize(
    "value", ["x", {}, {"time": "t"}, {"time": 1, "value": "x"}, {"time": "t", "value": "x" * 101}]
)
def test_a_malformed_signature_is_refused(value: Json) -> None:
    with pytest.raises(DecisionRefused, match="a decision: signature"):
        read_decision({"decision": "approve", "signature": value})


def test_a_private_key_is_written_once_for_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "ada.pem"
    key = create_key(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_signing_key(str(file)).public_key().public_bytes_raw() == key
    with pytest.raises(FileExistsError):
        create_key(file)
    for name, content in (("text", "x"), ("none", None)):
        if content is not None:
            (tmp_path / name).write_text(content, "utf-8")
        with pytest.raises(ClientError, match=r"no private key|cannot be read"):
            read_signing_key(str(tmp_path / name))
    assert json.dumps(APPROVERS[0].to_json())
    assert isinstance(read_decision({}, "approve"), Decision)
