"""No Call starts with a subject that nobody who may has approved, whatever people decide, edit, provide or reset.

The test reads the values from what is started, and looks for each of them in what somebody approved: every value that
comes from outside is another number, so one that was swapped in is nowhere in what was shown.
"""

from __future__ import annotations

import base64
import copy
import json
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import event as label
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from acts.language.messages import Data, parse_message, read_request
from acts.language.wire import INSTANCE, PROVIDE
from acts.machines import commands, events
from acts.machines.call_state import SETTLED
from acts.machines.plan_run import PlanRun, PlanSetup
from acts.plan.validate import validate_parsed
from acts.tree.decisions import SIGN, PendingApproval, make_statement, read_approvers, read_decision
from acts.tree.records import Capabilities, ContextRef, InstanceInput, PlanState, TreePosition
from acts.tree.signal_records import Told
from acts.tree.wire_format import digest
from acts.views.run_views import PlanView
from tests.property.simulated_tree import SETTINGS, RuleBasedStateMachine
from tests.workflow.foreign import call, own, tool

Json = Any
NOW = "2026-01-01T00:00:00.000Z"
ROOT = "r"
KEYS = {name: Ed25519PrivateKey.from_private_bytes(name.encode().ljust(32)) for name in ("ada", "bob", "eve")}
_PUBLIC = {name: base64.b64encode(key.public_key().public_bytes_raw()).decode() for name, key in KEYS.items()}
APPROVERS = read_approvers({"ada": _PUBLIC["ada"], "bob": {"keys": _PUBLIC["bob"], "tools": ["pay"], "plans": False}})
# The Tools over the Activity that asks; to ``give`` is a Tool of the Request that says nothing of it
PAYS = ("pay", "give")
TOOLS = [tool("pay", activity="pay"), tool("give", activity="pay"), tool("echo", activity="echo")]
STATE = {"type": "state", "state": {"amount": 100, "orders": [{"n": 101}, {"n": 102}]}}
USER = {"type": "data", "kind": "user", "data": {"iban": 103}}
PLANS: dict[str, list[Json]] = {
    "values": [
        call("echo", "†state.seen", v="†state.amount"), call("pay", "†state.a", n="†state.amount", to="†user.iban"),
        call("give", "†state.b", n="†state.seen", _scopes=["user"]), call("pay", None, n="†state.a || †state.amount"),
    ],
    "each": [
        call("pay", "†state.a", _each="†state.orders", n="†item.n", to="†item.to || †user.iban"),
        call("give", "†state.b", _each="†state.orders", n="†item.n", t="†{item.n} of †{user.iban}"),
    ],
    "input": [call("pay", "†state.a", n="†input.n"), call("echo", "†state.seen", v="†state.a")],
    "instances": [call("pay", "†state.a", n="†state.own", to="†user.iban"), call("echo", "†state.s", v="†state.a")],
}  # fmt: skip
PLANS["instances"] = [
    call("pay", "†state.a", n="†state.own", to="†user.iban"),
    call("echo", "†state.seen", v="†state.a"),
]
TWO = [own("A", own=104), own("B", own=105)]


def leaves(value: Json) -> Iterator[Json]:
    """The numbers in a value, and in its texts: those of this test are all different."""
    if isinstance(value, (dict, list, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from leaves(part)
    elif isinstance(value, str):
        yield from map(int, re.findall(r"\b[0-9]{3,5}\b", value))
    elif isinstance(value, (int, float)):
        yield value


@dataclass(frozen=True)
class Approval:
    """What somebody who may has approved: at which point of the log of which epoch, and what they were shown."""

    wait: PendingApproval
    subject: Json
    at: int
    epoch: int
    by: str


@dataclass
class World:
    """A run and its instances, and everything that reaches them. ``log`` is what the root has taken since it began."""

    request: Json
    position: TreePosition
    runs: dict[str, PlanRun] = field(default_factory=dict)
    queue: deque[tuple[str, events.Event]] = field(default_factory=deque)
    in_flight: list[tuple[str, str]] = field(default_factory=list)
    answers: dict[str, Json] = field(default_factory=dict)
    starts: list[tuple[str, Json, Json, Json]] = field(default_factory=list)
    children: dict[str, tuple[str, str]] = field(default_factory=dict)
    log: list[events.Event] = field(default_factory=list)
    state: Json = None

    def root(self) -> PlanRun:
        """The root as it began, or as it continued as new."""
        if self.state is None:
            return self._make(ROOT, self.request, self.position, Capabilities(), None)
        state = PlanState.from_json(json.loads(json.dumps(self.state)))
        run = self._make(ROOT, state.request, state.position, state.capabilities or Capabilities(), None)
        run.restore(state)
        return run

    def _make(
        self, id_: str, raw: Json, position: TreePosition, known: Capabilities, own_: InstanceInput | None
    ) -> PlanRun:
        places = None if own_ is None else own_.places
        prepared = validate_parsed(read_request(raw), known.tools, known.served, places)
        source = ContextRef(workflowId=ROOT, runId="1", messageCount=1)
        setup = PlanSetup(raw, prepared, known, position, source, own_, None if own_ is None else own_.lease)
        return PlanRun(id_, setup, lambda node: f"{id_}/{node.key}")

    def send(self, id_: str, event: events.Event) -> None:
        self.queue.append((id_, event))
        self.settle()

    def settle(self) -> None:
        while self.queue:
            id_, event = self.queue.popleft()
            if id_ not in self.runs:
                continue
            if id_ == ROOT:
                self.log.append(event)
            self._perform(id_, self.runs[id_].handle(event, NOW))
            self._perform(id_, self.runs[id_].flush(NOW))
            self._end_if_over(id_)

    def _perform(self, id_: str, made: list[Any]) -> None:
        for command in made:
            match command:
                case commands.StartCall(node=node, call=sent, context=context):
                    self._start(id_, node, sent, context)
                    self.in_flight.append((id_, node.key))
                case commands.StartBackground(node=node, input=background):
                    self._start(id_, node, background.call, background.context)
                    self.queue.append((id_, events.CallDetached(node.key)))
                case commands.StartChild(input=input_, type=type_) if type_ == INSTANCE:
                    name = f"{id_}/{command.name}"
                    given = InstanceInput.from_json(json.loads(json.dumps(input_.to_json())))
                    known = given.capabilities or Capabilities()
                    self.runs[name] = self._make(name, given.request, given.position, known, given)
                    self.children[name] = (id_, command.key)
                    self.queue += [(id_, events.ChildStarted(command.key, name)), (name, events.Begin())]
                case commands.SendRecord(workflow_id=target, record=record, key=key):
                    self.queue.append((target, events.RecordReceived(record)))
                    self.queue.append((id_, events.RecordEnded(key, None if target in self.runs else "gone")))
                case commands.SignalChildren():
                    self._signal(id_, command)
                case commands.AnswerUpdate(id=update, problem=problem):
                    self.answers[update] = problem

    def _signal(self, id_: str, command: commands.SignalChildren) -> None:
        for name, (parent, key) in self.children.items():
            if parent != id_ or (command.instance is not None and command.instance != key):
                continue
            token = self.position.token
            event: events.Event = events.RecordReceived(Told(token=token, word=command.signal, message=command.payload))
            if not command.is_told and command.signal == PROVIDE:
                message = parse_message(command.payload)
                assert isinstance(message, Data)
                event = events.Provided(message)
            self.queue.append((name, event))

    def _start(self, id_: str, node: Any, sent: Json, context: Json) -> None:
        self.starts.append((id_, node, sent, context))

    def _end_if_over(self, id_: str) -> None:
        if self.runs[id_].finished is None or id_ not in self.children:
            return
        parent, key = self.children.pop(id_)
        report = PlanView(self.runs.pop(id_)).instance_result()
        self.queue.append((parent, events.ChildEnded(key, report)))

    def reset(self, at: int, epoch: int) -> None:
        """The root is reset to a point of its history: what it has started by then is in flight or has ended."""
        log, self.log = self.log[:at], self.log[:at]
        self.runs[ROOT], keys = self.root(), []
        for event in log:
            made = [*self.runs[ROOT].handle(event, NOW), *self.runs[ROOT].flush(NOW)]
            keys += [c.node.key for c in made if isinstance(c, commands.StartCall)]
        by_key = self.runs[ROOT].walk.by_key
        self.in_flight = [(ROOT, key) for key in keys if key in by_key and by_key[key].stage == "running"]
        self.queue.clear()
        self.send(ROOT, events.RunReset("first", f"{epoch}"))

    def renew(self) -> None:
        self.state = json.loads(json.dumps(self.runs[ROOT].snapshot().to_json()))
        self.runs[ROOT], self.log = self.root(), []
        self.send(ROOT, events.Begin())


class Approvals(RuleBasedStateMachine):
    """People decide about the Calls of a run, and others try to have something else carried out."""

    @initialize(
        plan=st.sampled_from([*PLANS, "values"]), signs=st.booleans(), asks=st.booleans(),
        others=st.booleans(), mode=st.sampled_from(["wait", "fail"]), needed=st.sampled_from([1, 1, 2]),
    )  # fmt: skip
    def begin(self, *, plan: str, signs: bool, asks: bool, others: bool, mode: str, needed: int) -> None:
        label(f"{plan}, {'signed' if signs else 'by anybody'}, {'the plan too' if asks else 'Calls'}")
        self.signs, self.asks, self.others, self.needed = signs, asks, others, needed
        approve: Json = {"calls": ["pay"], "plan": asks, "selfApproval": not others}
        approve["rules"] = [{"calls": ["pay"], "when": "†call._tool != null", "of": 2}] if needed > 1 else []
        approve["rules"] += [{"plan": True, "of": 2}] if needed > 1 and asks and not signs else []
        config = {"approve": approve, "missing": "wait" if plan == "input" else mode}
        context = [*TOOLS, STATE, USER, *(TWO if plan == "instances" else [])]
        request = {"config": config, "context": [*context, {"type": "plan", "plan": PLANS[plan]}]}
        position = TreePosition(identity="run", token="t", startedAt="1", approvers=APPROVERS if signs else ())  # noqa: S106
        self.world = World(request, position)
        self.next = 1000
        self.epoch = self.updates = 0
        self.has_instances = plan == "instances"
        self.approvals: list[Approval] = []
        self.edits: list[tuple[str, str, int]] = []  # run, by, at
        self.signed: list[tuple[Json, int]] = []
        self.replaced: set[int] = set()  # Calls that somebody edited who may decide about them
        self.known = [*leaves(context)] if not asks else []
        self.data: list[Json] = [m for m in context if m["type"] != "tool"]
        self.world.runs[ROOT] = self.world.root()
        self._send(events.Begin())

    # -- what is true -----------------------------------------------------------------------------------

    def _send(self, event: events.Event, id_: str = ROOT) -> None:
        self.world.send(id_, event)
        self._check_starts()

    def _check_starts(self) -> None:
        starts, self.world.starts = self.world.starts, []
        for id_, node, sent, context in starts:
            name, given = sent["_tool"], {k: v for k, v in sent.items() if not k.startswith("_")}
            values, id_of_call = {*leaves(given), *leaves(context)}, node.id.partition("[")[0]
            own_ = [a for a in self.approvals if (a.wait.workflow_id, a.wait.call) == (id_, id_of_call)]
            if name in PAYS:
                standing = [a for a in own_ if a.epoch == self.epoch or not self.signs]
                assert standing, f"{node.id} was started, and nobody has approved it"
                subject = standing[-1].subject
                people = {a.by for a in standing if a.wait.subject == standing[-1].wait.subject}
                assert len(people) >= self.needed, f"{people} have approved {node.id}, and {self.needed} have to"
                assert (subject["tool"], subject["answeredBy"]["activity"]) == (name, "pay")
                missing = [value for value in values if not self._is_in(value, subject)]
                assert not missing, f"{node.id} is started with {missing}: who approved {subject} has not seen that"
                shown = {k: v for k, v in subject["with"].items() if not k.startswith("_")}
                is_same = json.dumps(shown, sort_keys=True) == json.dumps(given, sort_keys=True)
                assert is_same or node.element is not None, f"{given} is started, and {shown} was approved"
            strange = [v for v in values if not self._is_in(v, [self.known, *(a.subject for a in self.approvals)])]
            assert not strange, f"{node.id} is started with {strange}, which nobody has approved"
        if starts and self.asks:
            self._check_plan()

    def _is_in(self, value: Json, subject: Json) -> bool:
        return any(type(value) is type(other) and value == other for other in leaves(subject))

    def _check_plan(self) -> None:
        """What an approver of the plan has seen is not taken away silently."""
        approved = [a for a in self.approvals if a.wait.what == "plan" and a.wait.workflow_id == ROOT]
        root = self.world.runs[ROOT]
        now = root.whole_plan.request.calls
        for at, planned in enumerate(approved[-1].subject["plan"] if approved else ()):
            assert at < len(now), f"Call {at + 1} was approved, and is gone: {now}"
            if json.dumps(planned) == json.dumps(now[at]):
                continue
            state = next((c for c in root.walk.calls if c.node.index == at), None)
            ids = [a.wait.call for a in self.approvals if a.wait.call and a.wait.call.startswith(f"{at + 1}:")]
            is_own = at + 1 in self.replaced
            assert is_own or state is None or ids or state.stage not in SETTLED, f"{planned} was approved: {now[at]}"

    # -- people -----------------------------------------------------------------------------------------

    def _waits(self) -> list[PendingApproval]:
        return self.world.runs[ROOT].approvals.pending if ROOT in self.world.runs else []

    def _subject(self, wait: PendingApproval) -> Json:
        run = self.world.runs[wait.workflow_id]
        inner = next(w for w in run.approvals.waits.own if (w.what, w.call) == (wait.what, wait.call))
        subject = run.subject_of(inner)
        assert digest(subject) == wait.subject == inner.subject, "what is shown is not what is signed"
        return copy.deepcopy(subject)

    def _may(self, who: str, wait: PendingApproval) -> bool:
        """Written down a second time: who may decide about this."""
        if not self.signs:
            return True
        names = {str(wait.call).partition(":")[2], wait.about.get("activity")}
        return who == "ada" or (who == "bob" and "pay" in names)

    def _sign(self, wait: PendingApproval, raw: Json, who: str) -> Json:
        if SIGN not in wait.about:
            return raw
        value = KEYS[who].sign(make_statement(wait, read_decision(raw), NOW))
        return {**raw, "signature": {"time": NOW, "value": base64.b64encode(value).decode()}}

    def _decide(self, raw: Json) -> bool:
        """Send a decision, and note what it approved before what starts is judged; True if it was carried out."""
        self.updates += 1
        update, at, runs = f"u{self.updates}", len(self.world.log), dict(self.world.runs)
        seen = {(w.workflow_id, w.subject): (w, self._subject(w)) for w in self._waits()}
        counts = {id_: len(run.approvals.records) for id_, run in runs.items()}
        self.world.send(ROOT, events.DecisionReceived(raw, None, update))
        for id_, run in runs.items():
            for record in run.approvals.records[counts[id_] :]:
                if {"below", "instance"} & record.keys() and id_ == ROOT and self.has_instances:
                    continue  # the record of a child, in its report
                self._note(record, *seen[id_, record["subject"]], raw, at)
        self._check_starts()
        return self.world.answers[update] is None

    def _note(self, record: Json, wait: PendingApproval, subject: Json, raw: Json, at: int) -> None:
        assert self._may(raw["by"], wait), f"{raw['by']} may not decide about {wait}"
        assert raw.get("version", wait.version) == wait.version
        assert raw.get("subject", wait.subject) == wait.subject
        assert not self.signs or {"version", "subject", "signature"} <= raw.keys()
        if record["decision"] == "edit":
            self.edits.append((wait.workflow_id, raw["by"], at))
            self.replaced |= {int(wait.call.partition(":")[0])} if wait.call else set()
        if record["decision"] == "approve":
            assert not (self.others and raw["by"] in self._editors(wait)), f"{raw['by']} has edited what they approve"
            self.approvals.append(Approval(wait, subject, at, self.epoch, raw["by"]))
            if wait.what == "plan" and "instances" in subject:
                assert subject["instances"]["sha256"] == digest(self.data)
                self.known += leaves(self.data)

    def _editors(self, wait: PendingApproval) -> list[str]:
        return [by for id_, by, _ in self.edits if id_ == wait.workflow_id]

    @precondition(lambda self: self._waits())
    @rule(
        data=st.data(), who=st.sampled_from(["ada", "ada", "ada", "bob", "eve"]),
        word=st.sampled_from(["approve", "approve", "approve", "reject"]),
        lie=st.sampled_from([*[None] * 4, "version", "subject", "no version", "no subject", "key", "no key"]),
    )  # fmt: skip
    def decide(self, data: st.DataObject, who: str, word: str, lie: str | None) -> None:
        """Somebody decides about something that waits; some lie, or say too little."""
        wait = self._some_wait(data)
        raw = self._about(wait, {"decision": word, "by": who, **({"reason": "no"} if word == "reject" else {})})
        if lie == "version":
            raw["version"] += data.draw(st.sampled_from([-1, 1]))
        if lie == "subject":
            raw["subject"] = digest("another")
        if lie in ("no version", "no subject"):
            del raw[lie.removeprefix("no ")]
        if self.signs and lie != "no key":
            raw = self._sign(wait, raw, "eve" if lie == "key" else who)
            self.signed.append((raw, self.epoch))
        editors = self._editors(wait) if self.others and word == "approve" else []
        has_approved = word == "approve" and who in wait.about.get("approvals", ())
        is_honest = lie is None and self._may(who, wait) and who not in editors and not has_approved
        done = self._decide(raw)
        assert done or not is_honest, self.world.answers[f"u{self.updates}"]

    def _some_wait(self, data: st.DataObject) -> PendingApproval:
        waits = self._waits()
        return waits[data.draw(st.integers(0, len(waits) - 1))]

    def _about(self, wait: PendingApproval, raw: Json) -> Json:
        names = {"call": wait.call, "workflowId": wait.workflow_id, "instance": wait.instance}
        about = {"version": wait.version, "subject": wait.subject, **{k: v for k, v in names.items() if v is not None}}
        return {**about, **raw}

    @precondition(lambda self: getattr(self, "signed", None))
    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        """Somebody sends what was signed before, about whatever waits now."""
        raw, epoch = self.signed[data.draw(st.integers(0, len(self.signed) - 1))]
        done = self._decide(raw)
        assert not done or epoch == self.epoch, "a signature is void after a reset"

    @precondition(lambda self: self._waits())
    @rule(
        data=st.data(),
        who=st.sampled_from(["ada", "bob"]),
        kind=st.sampled_from(["value", "true", "skip", "tool", "cut"]),
    )
    def edit(self, data: st.DataObject, who: str, kind: str) -> None:
        """Somebody edits a Call, or the plan: another value, ``true`` for 1, a Call that is skipped, or none."""
        wait = self._some_wait(data)
        run = self.world.runs[wait.workflow_id]
        calls = list(run.walk.prepared.request.calls)
        whole = wait.call is None or data.draw(st.booleans())
        at = data.draw(st.integers(0, len(calls) - 1)) if whole else int(str(wait.call).partition(":")[0]) - 1
        changed = {k: v for k, v in calls[min(at, len(calls) - 1)].items() if k != "_scopes"}
        parameter, kinds = "n" if "n" in changed else "v", ["n", "n", "true", "skip", "tool", "cut"]
        kind = data.draw(st.sampled_from(kinds))
        changed |= {
            "n": {parameter: self._number()}, "true": {parameter: True}, "skip": {"_when": "false"},
            "tool": {"_tool": data.draw(st.sampled_from(["pay", "give", "echo"]))}, "cut": {},
        }[kind]  # fmt: skip
        raw = {"decision": "edit", "by": who, "call": wait.call, "with": changed}
        if whole:
            calls = calls[:-1] if kind == "cut" and len(calls) > 1 else [*calls[:at], changed, *calls[at + 1 :]]
            raw = {"decision": "edit", "by": who, "plan": calls}
        raw = {k: v for k, v in self._about(wait, raw).items() if not (whole and k in ("call", "instance"))}
        self._decide(self._sign(wait, raw, who))

    def _number(self) -> int:
        self.next += 1
        return self.next

    # -- others -----------------------------------------------------------------------------------------

    @rule(data=st.data(), is_update=st.booleans(), kind=st.sampled_from(["amount", "orders", "user", "input", "own"]))
    def provide(self, data: st.DataObject, kind: str, is_update: bool) -> None:  # noqa: FBT001
        """Whoever may signal the run gives it other values."""
        n = self._number()
        message: Json = {
            "amount": {"type": "state", "state": {"amount": n}},
            "orders": {"type": "state", "state": {"orders": [{"n": n}, {"n": self._number()}]}},
            "user": {"type": "data", "kind": "user", "data": {"iban": n}},
            "input": {"type": "input", "input": {"n": n}},
            "own": own("A", own=n),
        }[kind]  # fmt: skip
        parsed = parse_message(message)
        assert isinstance(parsed, Data)
        is_waiting, joined = bool(self._waits()), self.world.runs[ROOT].walk.context.provided
        count = len(joined)
        target = data.draw(st.sampled_from([*self.world.runs])) if kind != "own" else ROOT
        self.updates += 1
        update = f"u{self.updates}" if is_update else None
        if not self.asks:
            self.known.append(n)
            self.known += leaves(message)
        self._send(events.Provided(parsed, update=update), target)
        if update is not None and target == ROOT:
            refused = self.world.answers[update]
            assert refused is not None or not (self.signs and is_waiting), "it is for approvers to change what waits"
        if len(self.world.runs[ROOT].walk.context.provided) > count:
            self.data.append(message)

    @rule(pauses=st.booleans())
    def pause_or_resume(self, pauses: bool) -> None:  # noqa: FBT001
        run = self.world.runs[ROOT]
        before, is_reserved = run.is_paused, self.signs and bool(self._waits())
        self._send(events.PauseChanged(pauses))
        assert run.is_paused is (before if is_reserved or run.finished else pauses)

    @precondition(lambda self: self.world.in_flight)
    @rule(data=st.data(), fails=st.integers(0, 4))
    def end_a_call(self, data: st.DataObject, fails: int) -> None:
        """A Call returns a value that only it knows."""
        id_, key = data.draw(st.sampled_from(self.world.in_flight))
        self.world.in_flight.remove((id_, key))
        value = self._number()
        self.known.append(value)
        event = events.CallEnded(key, value) if fails else events.StartPostponed(key)
        self._send(event, id_)

    @precondition(lambda self: not self.world.children and not self.has_instances)
    @rule(data=st.data())
    def reset(self, data: st.DataObject) -> None:
        """Whoever may operate the namespace resets the run."""
        at = data.draw(st.integers(1, len(self.world.log)))
        self.epoch += 1
        self.approvals = [a for a in self.approvals if a.at < at]
        self.edits = [e for e in self.edits if e[2] < at]
        self.world.reset(at, self.epoch)
        self.began = {(ROOT, c.node.key) for c in self.world.runs[ROOT].walk.calls if c.has_started}
        self._check_starts()

    @rule()
    def continue_as_new(self) -> None:
        run = self.world.runs[ROOT]
        if run.can_continue_as_new and run.finished is None and not self.world.children:
            self.world.renew()
            self.approvals = [replace(a, at=-1) for a in self.approvals]
            self.edits = [(id_, by, -1) for id_, by, _ in self.edits]
            self._check_starts()


TestApprovedSubjects = Approvals.TestCase
TestApprovedSubjects.settings = SETTINGS


def test_an_answer_that_a_plan_has_already_is_asked_about_as_it_is() -> None:
    properties = {"_tool": {"const": "sign"}, "_activity": "", "_approval": True, "_output": {}, "_outputPath": {}}
    subjects = []
    for answer in (100, 101):
        plan = [call("sign", "†state.signed", _output=answer)]
        context = [{"type": "tool", "tool": {"properties": properties}}, {"type": "plan", "plan": plan}]
        world = World({"config": {"model": "scripted:x"}, "context": context}, TreePosition(identity="run", token="t"))  # noqa: S106
        world.runs[ROOT] = world.root()
        world.send(ROOT, events.Begin())
        (wait,) = world.runs[ROOT].approvals.pending
        subjects.append(world.runs[ROOT].subject_of(wait))
        world.send(ROOT, events.DecisionReceived({"decision": "approve", "call": wait.call}, None, "u"))
        assert world.runs[ROOT].walk.context.log.state() == {"signed": answer}
    assert [subject["output"] for subject in subjects] == [100, 101]
