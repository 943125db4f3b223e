"""What waits, as people read it: rows of the inbox, and a card with all that is decided and where each value is from.

All of it is read from Temporal when it is shown, and nothing is kept but for the seconds of ``Shared``, so that two
hundred viewers cost the workers no more than one. What a card shows is what its run vouches for: a wait whose content
does not have the digest of its subject is shown without any form that decides.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, TypeVar

from temporalio.client import Client

from acts.client.client_errors import ClientError
from acts.client.run_decisions import call_position
from acts.client.run_reader import EDITABLE, WITH, RunReader, add_parameters, read_pending, read_record
from acts.language.errors import ActsError, shell, truncate
from acts.language.messages import Data, Instruction, SetData, parse_message
from acts.language.references import MARK, Path, parse_output, paths, resolve_references
from acts.language.tools import META, Tool, hint_words
from acts.language.values import ABSENT, Json, is_equal
from acts.language.wire import AGENT, ANSWER
from acts.provenance import trace as provenance
from acts.provenance.trace import Limits, ProvenanceIndex, RunRecord, find_references
from acts.tree.decisions import APPROVALS, MESSAGE, OF, SHORT_SUBJECT, SIGN, Decision, PendingApproval, make_statement
from acts.tree.wire_format import canonical_json, digest
from acts.views.text import change_lines, tool_change_lines, usage_text, who_text

T = TypeVar("T")
FRESH_SECONDS: Final = 1.0  # how old a shared answer may be …
PATIENCE: Final = 1  # … or so many times what it took: 1,000 waits take seconds to read
MAX_WAITS: Final = 2_000  # that the inbox reads
MAX_SUMMARIES: Final = 10_000
PROVENANCE_SECONDS: Final = 5.0  # a card is shown without sources rather than late
_FEW: Final = 4
_WORD: Final = 60
_PLAIN: Final = str.maketrans("", "", '{}[]"')  # a row of the inbox has no room for JSON


class Shared:
    """Answers that many viewers share for a moment; one question at a time for each key."""

    def __init__(self) -> None:
        self._answers: dict[Any, tuple[float, asyncio.Future[Any]]] = {}

    async def get(self, key: Any, ask: Callable[[], Awaitable[T]]) -> T:
        now = time.monotonic()
        self._answers = {k: v for k, v in self._answers.items() if v[0] > now or not v[1].done()}
        if key not in self._answers:
            self._answers[key] = now + FRESH_SECONDS, asyncio.ensure_future(self._ask(key, ask))
        answer: T = await asyncio.shield(self._answers[key][1])
        return answer

    async def _ask(self, key: Any, ask: Callable[[], Awaitable[T]]) -> T:
        began = time.monotonic()
        try:
            return await ask()
        finally:
            now = time.monotonic()
            until = now + max(FRESH_SECONDS, PATIENCE * (now - began))
            self._answers[key] = until, self._answers[key][1]

    def forget(self) -> None:
        """What was decided shows at once."""
        self._answers = {k: v for k, v in self._answers.items() if not v[1].done()}


@dataclass(frozen=True)
class Wait:
    """A row of the inbox. ``run`` is the root of the tree in which it waits."""

    run: str
    approval: PendingApproval
    summary: str = ""

    @property
    def token(self) -> str:
        """What tells this wait from all others of its tree, whatever version of it."""
        return digest(list(self.approval.key), 16)

    @property
    def tool(self) -> str:
        content = self.approval.content or {}
        call = self.approval.call
        return str(content.get("tool") or (call.partition(":")[2] if call else f"a {self.approval.what}"))

    @property
    def words(self) -> str:
        """The first values of a Call, or the Calls of a plan."""
        content = self.approval.content or {}
        if isinstance(plan := content.get("plan"), list):
            return ", ".join(str(call.get("_tool")) for call in plan if isinstance(call, dict))[: 2 * _WORD]
        own = ((k, json.dumps(v, ensure_ascii=False).translate(_PLAIN), v) for k, v in self.parameters.items())
        texts = [truncate(f"{name} {value if isinstance(value, str) else text}", _WORD) for name, text, value in own]
        return ", ".join(texts[:_FEW]) + (" …" if len(texts) > _FEW else "")

    @property
    def parameters(self) -> dict[str, Json]:
        """The values of a Call, those of the protocol left out."""
        values = (self.approval.content or {}).get(WITH)
        return {k: v for k, v in values.items() if not k.startswith("_")} if isinstance(values, dict) else {}

    @property
    def details(self) -> list[Value]:
        """How what is decided is done, in words; its JSON alone has what a page shows in another way."""
        content = self.approval.content or {}
        own = content.get(WITH)
        meta = ((k, v) for k, v in own.items() if k.startswith("_")) if isinstance(own, dict) else ()
        hidden = (*_ELSEWHERE, "answeredBy") if "plan" in content else _ELSEWHERE
        return [_detail(k, v) for k, v in chain(content.items(), meta) if k not in hidden and v not in ({}, [], None)]

    @property
    def decided(self) -> list[Value]:
        return [*(Value(name, value) for name, value in self.parameters.items()), *self.details]

    @property
    def editors(self) -> list[str]:
        changes = self.approval.about.get("changes")
        own = changes if isinstance(changes, list) else []
        return list(dict.fromkeys(str(c["by"]) for c in own if isinstance(c, dict) and "by" in c))

    @property
    def hints(self) -> list[str]:
        hints = self.approval.about.get("hints")
        return [str(hint) for hint in hints[:4]] if isinstance(hints, list) else []

    @property
    def is_signed(self) -> bool:
        return SIGN in self.approval.about

    @property
    def is_editable(self) -> bool:
        return self.approval.what != MESSAGE and self.approval.about.get(EDITABLE, True) is True

    @property
    def is_decidable(self) -> bool:
        """True where all that is decided is here."""
        return self.approval.content is not None

    @property
    def is_approved_alike(self) -> bool:
        return self.approval.call is not None and self.approval.what != ANSWER and self.is_decidable

    @property
    def who(self) -> str:
        return who_text(self.approval.about)

    @property
    def missing(self) -> int:
        """How many others have to approve it after this approval."""
        of, names = (self.approval.about.get(key) for key in (OF, APPROVALS))
        return max(of - 1 - len(names if isinstance(names, list) else ()), 0) if isinstance(of, int) else 0

    @property
    def like(self) -> str:
        """What like Calls have in common: the tool, what answers it, and whether a decision is signed."""
        return digest([self.tool, (self.approval.content or {}).get("answeredBy"), self.is_signed], 16)

    @property
    def text(self) -> str:
        """What a search looks at."""
        parts = (self.tool, self.words, self.run, self.summary, self.approval.instance or "", *self.editors)
        return " ".join(parts).casefold()

    @property
    def seen(self) -> str:
        """What a form sends back: which wait, and what was shown of it. ASCII, whatever a name holds."""
        pending = self.approval
        return json.dumps({"run": self.run, "wait": self.token, "version": pending.version, "subject": pending.subject})

    @property
    def signing(self) -> str:
        """What a browser signs, without the decision; the text of the content has the digest of the subject. ASCII."""
        content = canonical_json(self.approval.content).decode(errors="surrogatepass")
        statement = json.loads(make_statement(self.approval, Decision.model_construct(decision=""), ""))
        return json.dumps({**json.loads(self.seen), "content": content, "statement": statement})

    def command(self, word: str) -> str:
        """The command that signs."""
        approval, more = self.approval, [] if self.approval.call is None else ["--call", self.approval.call]
        more += [] if approval.workflow_id == self.run else ["--workflow-id", approval.workflow_id]
        more += [] if approval.instance is None else ["--instance", approval.instance]
        subject = str(approval.subject)[:SHORT_SUBJECT]
        command = shell("acts", word, self.run, *more, "--version", approval.version, "--subject", subject)
        return f"{command} --by NAME --key FILE"


@dataclass(frozen=True)
class Inbox:
    waits: list[Wait]
    unanswered: list[str]
    unread: int

    @property
    def digest(self) -> str:
        """Another one whenever something else waits."""
        return digest([[wait.run, wait.token, wait.approval.subject] for wait in self.waits], 16)


async def read_inbox(client: Client, summaries: dict[str, str]) -> Inbox:
    """All that waits; ``summaries`` keeps those of runs, which never change."""
    report = await read_pending(limit=MAX_WAITS, client=client)
    missing = [id_ for id_, _ in report.approvals if id_ not in summaries]
    if len(summaries) > MAX_SUMMARIES:
        summaries.clear()
    for first in range(0, len(missing), 50):
        batch = missing[first : first + 50]
        summaries.update(zip(batch, await asyncio.gather(*(read_summary(client, id_) for id_ in batch)), strict=True))
    waits = [Wait(id_, approval, summaries.get(id_, "")) for id_, listed in report.approvals for approval in listed]
    return Inbox(waits, report.unanswered, report.unread)


async def read_summary(client: Client, id_: str) -> str:
    with suppress(Exception):  # a list is shown whatever one run is
        return str(await (await RunReader(client, id_).describe()).static_summary() or "")
    return ""


@dataclass(frozen=True)
class Value:
    """A value on a card: a parameter of a Call, with where it is from."""

    name: str
    value: Json
    title: str = ""
    description: str = ""
    sources: list[str] = field(default_factory=list)
    outside: bool = False
    was: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class PlannedOne:
    """A Call of a plan that waits."""

    id: str
    answer: str
    values: list[Value]
    remarks: list[str]


@dataclass
class Card:
    """A wait with all that is decided, and what helps to decide; without ``wait``: it no longer waits, and ``verdict``
    is the record of the decision about it, as far as it is known.
    """

    run: str
    wait: Wait | None
    summary: str = ""
    is_agent: bool = False
    tool: Tool | None = None
    values: list[Value] = field(default_factory=list)
    calls: list[PlannedOne] = field(default_factory=list)
    asked: list[Value] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    cost: str = ""
    changes: list[str] = field(default_factory=list)
    plan: list[Any] = field(default_factory=list)
    """The Calls as they are written, with their references; an edit begins with one of them."""
    tools: Mapping[str, Tool] = field(default_factory=dict)
    verdict: Mapping[str, Any] | None = None
    is_over: bool = False

    def known(self, call: str, written: Mapping[str, Json]) -> dict[str, Json]:
        """The values of a Call that people decide about, by parameter; an element has its own, so none is known."""
        if self.wait is None or "_each" in written:
            return {}
        own = next((one.values for one in self.calls if one.id == call), self.values)
        return {one.name: one.value for one in own if one.name in written}

    @property
    def has_outside(self) -> bool:
        return any(one.outside for one in chain(self.values, *(call.values for call in self.calls)))

    @property
    def hints(self) -> list[str]:
        declared = hint_words(self.tool.schema) if self.tool else ()
        return list(dict.fromkeys([*(self.wait.hints if self.wait else ()), *declared]))


async def find_waits(client: Client, run: str, tokens: Container[str]) -> tuple[RunReader, dict[str, Wait]]:
    """Those of these waits of a run that wait still, with all that is decided."""
    reader = RunReader(client, run)
    if (await reader.describe()).close_time is not None:
        return reader, {}
    listed = [a for a in await reader.require(reader.pending()) if Wait(run, a).token in tokens]
    waits = [Wait(run, whole) for whole in await add_parameters(reader, listed)]
    return reader, {wait.token: wait for wait in waits}


async def find_wait(client: Client, run: str, token: str) -> tuple[RunReader, Wait | None]:
    """A wait of a run as it is now, with all that is decided; None: it no longer waits."""
    reader, waits = await find_waits(client, run, (token,))
    return reader, waits.get(token)


async def read_card(client: Client, run: str, token: str, at: str = "") -> Card:
    """A card as it is now; ``at`` is the run below in which it waited. ClientError: there is no such run, or no worker
    answers.
    """
    reader, wait = await find_wait(client, run, token)
    card = Card(run, wait, await read_summary(client, run))
    card.is_over = (await reader.describe()).close_time is not None
    reader = reader.other(at) if wait is None and at else reader
    status = await reader.status() or await reader.result()
    card.decisions = [d for d in status.get("decisions") or () if isinstance(d, dict)]
    card.cost = usage_text(status["usage"]) if (status.get("usage") or {}).get("requests") else ""
    if wait is None:
        about = ((d, [reader.id, *(d.get(key) for key in ("what", "call", "instance")), None]) for d in card.decisions)
        card.verdict = next((d for d, key in reversed([*about]) if digest(key, 16) == token), None)
        return card
    waiting = reader.other(wait.approval.workflow_id)
    card.plan = await waiting.plan() or []
    record = RunRecord((), {}, None)
    with suppress(ClientError, ActsError, TimeoutError):
        async with asyncio.timeout(PROVENANCE_SECONDS):
            record, _ = await read_record(waiting)
    card.tools, card.tool = record.tools, record.tools.get(wait.tool)
    card.changes = [*change_lines(wait.approval.about.get("changes")), *tool_change_lines(wait.approval.about)]
    request = await _read_request(reader)
    card.is_agent = AGENT in [(await one.describe()).workflow_type for one in (reader, waiting)]
    _fill(card, wait, record, request)
    state = await waiting.value("†state", wait.approval.instance or "")
    if isinstance(state.get("value"), dict):
        card.results = [Value(name, value) for name, value in state["value"].items()]
    return card


async def _read_request(reader: RunReader) -> list[Json]:
    with suppress(Exception):  # the history of its start may be gone
        request = await reader.request()
        context = request.get("context") if isinstance(request, dict) else None
        return context if isinstance(context, list) else [{"type": "input", "input": request}]
    return []


def _asked(request: Sequence[Json]) -> Iterator[Value]:
    """What was asked for: texts and data, however they are written."""
    for raw in request:
        with suppress(ActsError):
            message = parse_message(raw)
            if isinstance(message, Instruction):
                yield Value(message.type, message.text)
            elif isinstance(message, Data) and message.payload is not ABSENT:
                yield Value(message.kind, message.raw if isinstance(message, SetData) else message.payload)


def _fill(card: Card, wait: Wait, record: RunRecord, request: Sequence[Json]) -> None:
    """Fill a card with what is decided, value by value, and with what was asked for."""
    content = wait.approval.content or {}
    card.asked = list(_asked(request))
    sources = Sources(record, request, card, wait)
    if isinstance(plan := content.get("plan"), list):
        answers, remarks = content.get("answeredBy"), wait.approval.about.get("calls")
        for at, call in enumerate(plan, 1):
            id_ = f"{at}:{call.get('_tool')}" if isinstance(call, dict) else str(at)
            remark = remarks.get(id_) if isinstance(remarks, dict) else None
            answer = answers.get(id_) if isinstance(answers, dict) else None
            values = list(sources.values_of(id_, call, call)) if isinstance(call, dict) else [Value(id_, call)]
            card.calls.append(PlannedOne(id_, answer_text(answer), values, list(map(str, remark or ()))))
    else:
        id_, written = str(wait.approval.call), dict[str, Any]()
        with suppress(ClientError):  # of a plan that cannot be read
            written = written_call(card.plan, id_)
        card.values = list(sources.values_of(id_, wait.parameters, written))


# What a card says of how a Call is done, or a plan, by the names of the protocol
_DETAILS: Final = {
    "answeredBy": "done by", "writes": "its result is kept as", "_outputPath": "its result is kept as",
    "_outputMethod": "how it is kept", "_errorPath": "its failure is kept as", "_scopes": "it may see",
    "context": "what it sees", "_each": "once for each of", "_when": "only if", "_instance": "for the instance",
    "_reasoningForCall": "why, says the planner", "values": "what it reads now", "undo": "what undoes it",
    "onFailure": "if it fails",
}  # fmt: skip
_ELSEWHERE: Final = ("plan", WITH, "tool", "_tool", "call", "form", "question", "_outputPath", "_errorPath")


def _detail(name: str, value: Json) -> Value:
    """A part of what is decided that is no value of a Call; paths stand without their marks."""
    if name == "answeredBy":
        value = answer_text(value)
    elif name == "values" and isinstance(value, dict):
        value = {key.removeprefix(MARK): one for key, one in value.items()}
    elif name in ("writes", "_scopes") and isinstance(value, list):
        value = ", ".join(map(str, value)).replace(MARK, "")
    elif name in ("_outputPath", "_errorPath", "_each", "_when") and isinstance(value, str):
        value = value.replace(MARK, "")
    return Value("", value, _DETAILS.get(name, name.lstrip("_")))


def written_call(plan: Sequence[Any], call: str) -> dict[str, Any]:
    """A Call of a plan as it is written. ClientError: the plan has none of this id."""
    with suppress(ClientError, IndexError):
        if isinstance(written := plan[call_position(call)], dict):
            return dict(written)
    raise ClientError(f"the plan has no call {call!r}", "open its page again")


def answer_text(answer: Any) -> str:
    """``refund, on the queue pay``, ``a person of finance``: who or what does a Call."""
    match answer:
        case {"person": [*names]}:
            return " of ".join(filter(None, ("a person", " or ".join(str(name) for name in names))))
        case {"model": model}:
            others: Any = answer.get("fallbackModels", ())
            return ", or else ".join(map(str, (f"the model {model}" if model else "a model", *others)))
        case {"delegate": name}:
            return f"the delegate {name}"
        case {"activity": name}:
            return f"{name}, on the queue {answer['taskQueue']}" if "taskQueue" in answer else str(name)
    return value_text(answer)


class Sources:
    """Where the values of Calls are from, in words; nothing where the run does not tell."""

    def __init__(self, record: RunRecord, request: Sequence[Json], card: Card, wait: Wait) -> None:
        self._record, self._card, self._wait = record, card, wait
        self._index = ProvenanceIndex(record) if record.messages else None
        plans = (m.get("plan") or () for m in request if isinstance(m, dict) and m.get("type") == "plan")
        self._requested = [call for plan in plans for call in plan if isinstance(call, dict)]
        self._read_now: Mapping[str, Json] = (wait.approval.content or {}).get("values") or {}
        calls = ((f"{at}:{call.get('_tool')}", call) for at, call in enumerate(card.plan, 1) if isinstance(call, dict))
        self._outputs = [(path, id_) for id_, call in calls for path in _output_paths(call)]

    def values_of(self, id_: str, values: Mapping[str, Any], written: Mapping[str, Any]) -> Iterator[Value]:
        """The parameters of a Call, in the order of its Tool's schema."""
        tool = self._record.tools.get(id_.partition(":")[2])
        properties = (tool.schema.get("properties") if tool else None) or {}
        is_plan = values is written
        shown = self._known(written, tool) if is_plan else values
        names = [n for n in (*properties, *(n for n in values if n not in properties)) if n in values and n not in META]
        for name in names:
            part = properties[name] if isinstance(properties.get(name), dict) else {}
            edits = list(self._edits(id_, name))
            sources, outside = self._of(name, written, tool, next((by for _, by in reversed(edits) if by), ""))
            title, description = (str(part.get(key) or "") for key in ("title", "description"))
            before = ((value_text(old), by) for old, by in edits if old is not ABSENT)
            was = [f"{old}, until {by} changed it" if by else old for old, by in before]
            yield Value(name, shown[name], title, description, sources, outside, was)
        yield from (_detail(n, shown[n]) for n in META if is_plan and n in values and n != "_tool")

    def _known(self, written: Mapping[str, Any], tool: Tool | None) -> Mapping[str, Any]:
        """A planned Call with the values that its parameters have, as far as no Call of the plan is to write them."""

        def read(path: Path) -> Json:
            instance = written.get("_instance")
            value = self._read_now.get(f"{path}" if instance is None else f"{path} [{instance}]", ABSENT)
            is_digest = isinstance(value, dict) and value.keys() == {"sha256", "bytes"}
            return ABSENT if is_digest or any(path.overlaps(other) for other, _ in self._outputs) else value

        with suppress(ActsError):
            uses = [use for use in find_references(dict(written), tool) if not str(use.at[0]).startswith("_")]
            return dict(resolve_references(dict(written), uses, read)[0])
        return written

    def _edits(self, id_: str, name: str) -> Iterator[tuple[Json, str]]:
        """What a parameter was before each change, ABSENT for nothing, and who changed it, "" for nobody."""
        changes = self._wait.approval.about.get("changes")
        for change in changes if isinstance(changes, list) else ():
            old, new = (change.get(key, ABSENT) for key in ("from", "to"))
            if str(change.get("call")) == id_.partition(":")[0]:
                old, new = (side.get(name, ABSENT) if isinstance(side, dict) else ABSENT for side in (old, new))
            elif change.get("part") != f"with.{name}":
                continue
            if old is not new and (ABSENT in (old, new) or not is_equal(old, new)):
                yield old, str(change.get("by") or "")

    def _of(self, name: str, written: Mapping[str, Any], tool: Tool | None, by: str) -> tuple[list[str], bool]:
        if name not in written:
            return [], False
        uses = []
        with suppress(ActsError):
            uses = [use for use in find_references(dict(written), tool) if use.at[:1] == (name,)]
        if uses and self._index is None:
            return ["where it is from cannot be read"], True
        origins = [self._source(path) for use in uses for path in use.paths]
        words, outside = [word for words, _ in origins for word in words], any(is_outside for _, is_outside in origins)
        is_whole = len(uses) == 1 and uses[0].at == (name,) and not isinstance(written[name], (dict, list))
        if not is_whole or not uses:
            author, is_outside = (f"written by {by}", False) if by else self._author(name, written)
            words, outside = [*words, author], outside or is_outside
        return list(dict.fromkeys(words)), outside

    def _author(self, name: str, written: Mapping[str, Any]) -> tuple[str, bool]:
        same = (call for call in self._requested if call.get("_tool") == written.get("_tool"))
        if any(is_equal(call.get(name), written[name]) for call in same):
            return "written in the request", False
        return ("written by the planner", True) if self._card.is_agent else ("written in the plan", False)

    def _source(self, path: Path) -> tuple[list[str], bool]:
        index, instance = self._index, self._wait.approval.inner or self._wait.approval.instance
        if index is None:
            return [], True
        traced = index.why(path, instance if instance in index.instances else None, limits=Limits(1, 10, 20))
        words = [_origin_text(source, path) for source in traced.get("sources", ())]
        writers = [f"result of {id_}, not known yet" for other, id_ in self._outputs if path.overlaps(other)]
        return words or writers or [f"{path}, which has no value yet"], bool(traced.get("outside"))


def _origin_text(source: Mapping[str, Any], path: Path) -> str:
    if "call" in source and (writer := source.get("id") or source.get("tool")):
        return f"result of {writer}"
    match source.get("origin"):
        case provenance.REQUEST:
            return "from the input" if path.kind == "input" else "from the request"
        case provenance.PROVIDED:
            return "sent to the run later"
        case provenance.DECISION:
            return "from a person's decision"
    return "passed by the run above" if path.kind != "input" else "from the input of the run above"


def _output_paths(call: Mapping[str, Any]) -> tuple[Path, ...]:
    with suppress(ActsError):
        return paths(parse_output(str(call.get("_outputPath", ""))))
    return ()


def value_text(value: Json) -> str:
    """A value as people read it: text as it is, unless it could be mistaken for something else, all else as JSON."""
    if isinstance(value, str) and value.strip():
        try:
            json.loads(value)
        except ValueError:
            return value
    return json.dumps(value, ensure_ascii=False, indent=2)
