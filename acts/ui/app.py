"""The pages of ``acts ui``, and the same as JSON: the inbox, cards, decisions, runs.

- It keeps nothing: all it knows it asks of Temporal, and what it decides it sends there.
- A decision names the version and the subject that were shown. What differs by now is shown again, and nothing is sent.
- Every value is escaped, and has escapes for characters that nobody would see (``environment``): no template switches
  that off for a value.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, select_autoescape
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from temporalio.client import Client
from temporalio.service import RPCError

from acts.client.ag_ui_events import AgUiStream
from acts.client.client_errors import ClientError, NoSuchRunError, explained
from acts.client.event_feeds import EventFeeds, WatchRefused
from acts.client.run_decisions import send_decision
from acts.client.run_reader import PHASES, RunReader
from acts.language.errors import ActsError, DecisionRefused, visible
from acts.language.values import ABSENT, is_equal
from acts.language.wire import ANSWER, APPROVE, EDIT, GRAPH, REJECT, UNDO
from acts.tree.decisions import FORM, Decision, check_who
from acts.ui import cards, forms, runs
from acts.ui.access import Access, Guard, Visitor, check_csrf
from acts.ui.cards import Card, Wait
from acts.ui.forms import NOTHING
from acts.views.plan_svg import as_file
from acts.views.run_events import EventFilter, EventsRefused

HERE: Final = Path(__file__).parent
MAX_ROWS: Final = 200  # of the inbox, or of a bulk approval, at once: a decision takes a worker some 20 ms
MAX_FORM_FIELDS: Final = 5_000  # a Call has one for each of its parameters
MAX_BODY: Final = 4 * 1024 * 1024  # of a request; a run takes 2 MiB
LOOK_SECONDS: Final = 2.0  # how often what waits is compared for those who watch
BEAT_SECONDS: Final = 15.0  # proxies close a connection that is silent for half a minute or more
BULK: Final = 16  # decisions in flight: each is a task for a worker
CHANGED: Final = "this has changed since you were shown it, so nothing was sent. Look at what waits now"
QUESTION: Final = "Question before a decision: "  # how a rejection begins that asks back
WORDS: Final = {APPROVE: "Approved", REJECT: "Rejected", EDIT: "Changed", ANSWER: "Answered", UNDO: "Undone"}
FOLDED: Final = 4_000  # characters of a value that a page folds, and says so
_CONFLICT: Final = 409
_STREAM: Final = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}


def environment() -> Environment:
    """Templates in which whatever is printed is escaped, and shows what nobody would see."""

    def show(value: Any) -> Any:
        return visible(value, "\n") if isinstance(value, str) and not isinstance(value, Markup) else value

    own = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=select_autoescape(default=True), finalize=show,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    own.globals |= {"folded": FOLDED, "link": link, "question": QUESTION, "words": WORDS}
    own.filters |= {"value": cards.value_text}
    own.tests["question"] = lambda item: str(item.get("reason") or item.get("message")).startswith(QUESTION)
    return own


def link(path: str, **query: Any) -> str:
    """An address with its query quoted: ids may hold anything."""
    return f"{path}?{urlencode({k: v for k, v in query.items() if v}, quote_via=quote)}"


def make_app(client: Client, access: Access) -> Starlette:
    """The application over a client that is connected."""
    pages = Pages(client)
    routes = [
        *(Route(path, pages.explain(handler), methods=[method]) for method, path, handler in pages.routes()),
        Mount("/static", StaticFiles(directory=HERE / "static")),
    ]
    problems = (ClientError, HTTPException, ActsError, WatchRefused)
    handlers: Mapping[Any, Callable[..., Any]] = dict.fromkeys(problems, pages.problem)
    return Starlette(routes=routes, middleware=[Middleware(Guard, access=access)], exception_handlers=handlers)


class Pages:
    """One handler for each page."""

    def __init__(self, client: Client) -> None:
        self.client, self._shared = client, cards.Shared()
        self._templates, self._summaries = environment(), dict[str, str]()
        self._feeds: EventFeeds | None = None

    def routes(self) -> list[tuple[str, str, Callable[..., Any]]]:
        return [
            ("GET", "/", self.inbox), ("GET", "/card", self.card), ("POST", "/decide", self.decide),
            ("POST", "/answer", self.answer),
            ("GET", "/change", self.change), ("POST", "/change", self.send_change), ("GET", "/bulk", self.bulk),
            ("POST", "/bulk", self.send_bulk), ("GET", "/run", self.run), ("POST", "/run", self.steer),
            ("GET", "/run.svg", self.picture), ("GET", "/fork", self.fork), ("POST", "/fork", self.start_fork),
            ("GET", "/runs", self.all_runs), ("GET", "/enter", self.enter),
            ("GET", "/api/runs/{id:path}/events", self.events), ("GET", "/api/pending", self.pending),
            ("GET", "/api/pending/events", self.pending_events), ("POST", "/api/decide", self.decide_json),
        ]  # fmt: skip

    def explain(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        """A handler whose errors of the server, of keys and of storage say what they mean."""

        async def answer(request: Request) -> Response:
            if int(request.headers.get("content-length") or 0) > MAX_BODY:
                raise HTTPException(413, f"a request has at most {MAX_BODY:,} bytes")
            with explained(self.client):
                response: Response = await handler(request)
            return response

        return answer

    def _page(self, request: Request, name: str, status: int = 200, **values: Any) -> Response:
        visitor: Visitor | None = getattr(request.state, "visitor", None)
        text = self._templates.get_template(name).render(visitor=visitor, **values)
        return Response(text, status, media_type="text/html; charset=utf-8")

    async def problem(self, request: Request, error: Exception) -> Response:
        """What cannot be done, as a page or as JSON."""
        text, status = str(error), 400
        if isinstance(error, HTTPException):
            text, status = error.detail, error.status_code
        elif isinstance(error, NoSuchRunError):
            status = 404
        elif isinstance(error, WatchRefused) or (isinstance(error, ClientError) and error.is_unavailable):
            status = 503
        if request.url.path.startswith("/api/"):
            return JSONResponse({"ok": False, "problem": text}, status)
        return self._page(request, "problem.html", status, text=text)

    async def enter(self, request: Request) -> Response:  # noqa: ARG002 - who is in already
        return RedirectResponse("/", 303)

    # -- the inbox -------------------------------------------------------------------------------------

    async def _inbox(self) -> cards.Inbox:
        async def ask() -> cards.Inbox:
            with explained(self.client):
                return await cards.read_inbox(self.client, self._summaries)

        return await self._shared.get("inbox", ask)

    async def inbox(self, request: Request) -> Response:
        inbox, query = await self._inbox(), request.query_params
        words, tool, edited = query.get("q", "").casefold().split(), query.get("tool", ""), query.get("edited", "")
        waits = [
            w for w in inbox.waits
            if (not tool or w.tool == tool) and (not edited or w.editors) and all(word in w.text for word in words)
        ]  # fmt: skip
        groups: dict[str, list[Wait]] = {}
        for wait in waits:
            if wait.is_approved_alike:
                groups.setdefault(wait.like, []).append(wait)
        return self._page(
            request, "inbox.html", inbox=inbox, waits=waits[:MAX_ROWS], left=len(waits) - len(waits[:MAX_ROWS]),
            counts=Counter(w.tool for w in inbox.waits).most_common(), query=query,
            groups=[(key, group[0].tool, len(group)) for key, group in groups.items() if len(group) > 1],
        )  # fmt: skip

    async def bulk(self, request: Request, problem: str = "", ticked: Sequence[Any] | None = None) -> Response:
        like, status = request.query_params.get("like", ""), _CONFLICT if problem else 200
        waits = [w for w in (await self._inbox()).waits if w.like == like and w.is_approved_alike]
        more = {"waits": waits[:MAX_ROWS], "total": len(waits), "ticked": ticked}
        return self._page(request, "bulk.html", status, results=None, problem=problem, **more)

    async def send_bulk(self, request: Request) -> Response:
        form, visitor = await self._form(request)
        groups, limit = dict[str, list[dict[str, Any]]](), asyncio.Semaphore(BULK)
        for text in form.getlist("seen"):
            groups.setdefault((target := _read_seen(str(text)))["run"], []).append(target)

        async def approve(run: str, group: list[dict[str, Any]]) -> list[tuple[Mapping[str, Any], str]]:
            """A run is read once and takes its decisions in order; it refuses those about what has changed by then."""
            results: list[tuple[Mapping[str, Any], str]] = []
            async with limit:
                for target in group:
                    try:
                        if not results:
                            tokens = {target["wait"] for target in group}
                            reader, waits = await cards.find_waits(self.client, run, tokens)
                        wait = waits.get(target["wait"])
                        await self._send_to(reader, wait, target, visitor, APPROVE, str(form.get("reason") or ""))
                        more = wait.missing if wait is not None else 0
                        results.append((target, f"your approval counts, and {more} more must approve" if more else ""))
                    except (ClientError, StaleError, RPCError) as error:
                        results.append((target, str(error)))
            return results

        if str(form.get("count", "")).strip() != str(count := sum(map(len, groups.values()))):
            problem = f"nothing was sent: {count} are ticked, and the number that you typed is another one"
            return await self.bulk(request, problem, form.getlist("seen"))
        results = await asyncio.gather(*(approve(*group) for group in groups.items()))
        return self._page(request, "bulk.html", waits=[], results=[*chain(*results)], problem="")

    # -- cards -----------------------------------------------------------------------------------------

    async def card(self, request: Request) -> Response:
        return await self._card(request, request.query_params)

    async def _card(
        self, request: Request, which: Mapping[str, Any], status: int = 200, sent: Mapping[str, Any] = NOTHING,
        problems: Sequence[str] = (), **more: Any,
    ) -> Response:  # fmt: skip
        card = await cards.read_card(self.client, *_which(which))
        form = _form_of(card.wait)
        fields, rest = forms.show_sent([] if form is None else forms.answer_fields(form), sent, problems)
        notice = f"nothing was sent: {'; '.join(rest) or 'look at the fields'}" if problems else ""
        more = {"notice": notice, "reason": "", **more}
        more["fields"] = None if form is None else fields
        return self._page(request, "card.html", status, card=card, wait=card.wait, **more)

    async def answer(self, request: Request) -> Response:
        """Check and send what a person has filled in."""
        form, visitor = await self._form(request)
        target, sent = _read_seen(str(form.get("seen"))), dict(form)
        _, wait = await cards.find_wait(self.client, target["run"], target["wait"])
        schema = _form_of(wait)
        output, problems = (None, []) if schema is None else forms.read_answer(schema, sent)
        if form.get("step") == "check":
            return JSONResponse({"problems": problems, "output": output})
        try:
            if not problems:
                return await self._send(target, visitor, ANSWER, "", {"output": output})
        except (ClientError, StaleError) as error:
            problems = [str(error)]
        return await self._card(request, target, _CONFLICT, sent, problems)

    async def decide(self, request: Request) -> Response:
        form, visitor = await self._form(request)
        target = _read_seen(str(form.get("seen")))
        word, reason = str(form.get("decision")), str(form.get("reason") or "")
        if word == "ask":
            word, reason = REJECT, f"{QUESTION}{reason}" if reason.strip() else ""
        try:
            return await self._send(target, visitor, word, reason)
        except (ClientError, StaleError) as error:
            return await self._card(request, target, _CONFLICT, notice=str(error), reason=reason)

    async def _send(
        self, target: Mapping[str, Any], visitor: Visitor, word: str, reason: str, content: dict[str, Any] | None = None
    ) -> Response:
        """Send a decision about what was shown; leads to its card. StaleError: something else waits by now."""
        reader, wait = await cards.find_wait(self.client, target["run"], target["wait"])
        await self._send_to(reader, wait, target, visitor, word, reason, content)
        at = wait.approval.workflow_id if wait is not None else ""
        return RedirectResponse(link("/card", run=target["run"], wait=target["wait"], at=at), 303)

    async def _send_to(
        self, reader: RunReader, wait: Wait | None, target: Mapping[str, Any], visitor: Visitor, word: str, reason: str,
        content: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        if word not in (APPROVE, REJECT, EDIT, ANSWER):
            raise ClientError(f"{word!r} is no decision", "approve, reject, edit or answer")
        if word == REJECT and not reason.strip():
            raise ClientError("a rejection needs a reason", "an agent plans again with it")
        if wait is None:
            raise StaleError("this waits no longer; nothing was sent")
        approval = wait.approval
        if (approval.version, approval.subject) != (target["version"], target["subject"]):
            raise StaleError(CHANGED)
        if not wait.is_decidable and word != EDIT:
            raise ClientError("this cannot be decided here", "its page says why")
        if wait.is_signed:  # the one case in which a name is not the visitor's: who signed is proven
            if not isinstance(target.get("signature"), dict):
                raise ClientError("this run has approvers, so nothing was sent: a decision is signed", "its card signs")
            content = {**(content or {}), "by": target.get("by"), "signature": target["signature"]}
        elif visitor.groups is not None:
            try:
                check_who(approval, visitor.name, *visitor.groups)
            except DecisionRefused as error:
                raise ClientError(str(error), "nothing was sent") from None
        decision = Decision.model_construct(
            decision=word, by=visitor.name, reason=reason.strip() or None, version=approval.version,
            subject=approval.subject,
        )  # fmt: skip
        await send_decision(reader, decision, approval, content=content)
        self._shared.forget()

    async def change(self, request: Request) -> Response:
        card = await cards.read_card(self.client, *_which(request.query_params))
        return self._change(request, card, request.query_params.get("call", ""))

    def _change(
        self, request: Request, card: Card, call: str, status: int = 200, sent: Mapping[str, Any] = NOTHING,
        problems: Sequence[str] = (), **more: Any,
    ) -> Response:  # fmt: skip
        if card.wait is None or not card.wait.is_editable:
            raise ClientError("this cannot be changed here", "it waits no longer, or takes no edit")
        name = call or card.wait.approval.call or ""
        before, more = cards.written_call(card.plan, name), {"new": None, "rows": [], "note": "", **more}
        new = more["new"] or before
        known = {k: v for k, v in card.known(name, before).items() if is_equal(new.get(k, ABSENT), before[k])}
        fields = forms.form_fields(new, card.tools.get(name.partition(":")[2]), known)
        fields, rest = forms.show_sent(fields, sent, problems)
        more |= {"call": name, "fields": fields, "problems": rest}
        return self._page(request, "change.html", status, card=card, wait=card.wait, **more)

    async def send_change(self, request: Request) -> Response:
        """Check what was typed, show the difference, and send it, in three steps of one form."""
        form, visitor = await self._form(request)
        target, call, step = _read_seen(str(form.get("seen"))), str(form.get("call") or ""), str(form.get("step"))
        card = await cards.read_card(self.client, target["run"], target["wait"])
        before, tool = cards.written_call(card.plan, call), card.tools.get(call.partition(":")[2])
        note = str(form.get("note") or "")
        if step == "back":
            return self._change(request, card, call, new=_read_json(str(form.get("new"))), note=note)
        if step == "send":
            new = _read_json(str(form.get("new")))
            try:
                return await self._send(target, visitor, EDIT, note, {"call": call, "with": new})
            except (ClientError, StaleError) as error:
                texts = [problem.text() for problem in getattr(error, "problems", ())] or [str(error)]
                return self._change(request, card, call, _CONFLICT, new=new, problems=texts, note=note)
        if card.wait is None or card.wait.approval.subject != target["subject"]:
            raise StaleError(CHANGED)
        known = card.known(call, before)
        new, problems = forms.read_call(before, tool, dict(form), known)
        if step == "check":
            return JSONResponse({"problems": problems})
        rows = forms.differences(before, new, known)
        if problems := problems or ([] if rows else ["nothing was changed"]):
            return self._change(request, card, call, sent=form, problems=problems, note=note)
        return self._change(request, card, call, new=new, rows=rows, note=note)

    # -- runs ------------------------------------------------------------------------------------------

    async def run(self, request: Request) -> Response:
        id_, instance = request.query_params.get("id", ""), request.query_params.get("instance", "")
        view = await self._shared.get(("run", id_, instance), lambda: runs.read_run(self.client, id_, instance))
        waits = [Wait(view.id, approval) for approval in view.pending]
        return self._page(request, "run.html", view=view, waits=waits, notice="")

    async def picture(self, request: Request) -> Response:
        """The plan of a run as an SVG. A run may answer anything, so it is a file of its own, which runs nothing."""
        reader = RunReader(self.client, request.query_params.get("id", ""))
        svg = await self._shared.get(("svg", reader.id), lambda: reader.query(str, GRAPH, {"format": "svg"})) or ""
        headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}
        return Response(as_file(svg), 200 if svg else 404, headers, media_type="image/svg+xml")

    async def steer(self, request: Request) -> Response:
        form, _ = await self._form(request)
        id_ = str(form.get("id"))
        next_id = await runs.steer(self.client, id_, str(form.get("action")), str(form.get("name") or ""))
        self._shared.forget()
        return RedirectResponse(link("/run", id=next_id), 303)

    async def fork(self, request: Request) -> Response:
        query = request.query_params
        fork = await runs.read_fork(self.client, query.get("id", ""), query.get("call", ""))
        return self._fork(request, fork, secrets.token_hex(3))

    def _fork(self, request: Request, fork: runs.Fork, token: str, status: int = 200, **more: Any) -> Response:
        fields = forms.form_fields(fork.written, fork.tool)
        fields, rest = forms.show_sent(fields, more.get("sent", {}), more.get("problems", ()))
        return self._page(request, "fork.html", status, fork=fork, token=token, fields=fields, problems=rest)

    async def start_fork(self, request: Request) -> Response:
        form, _ = await self._form(request)
        fork = await runs.read_fork(self.client, str(form.get("id")), str(form.get("call")))
        token = str(form.get("token"))
        new, problems = forms.read_call(fork.written, fork.tool, dict(form))
        if problems:
            return self._fork(request, fork, token, _CONFLICT, sent=form, problems=problems)
        return RedirectResponse(link("/run", id=await runs.start_fork(fork, new, token)), 303)

    async def all_runs(self, request: Request) -> Response:
        phase = request.query_params.get("phase", "")
        report = await self._shared.get(("runs", phase), lambda: runs.read_runs(self.client, phase))
        return self._page(request, "runs.html", report=report, phase=phase, phases=PHASES)

    # -- the same as JSON, and as events ---------------------------------------------------------------

    async def pending(self, request: Request) -> Response:
        """``{waits: [{run, wait, tool, summary, …}], unanswered, unread}``, as ``acts pending --json``."""
        inbox = await self._inbox()
        waits = [
            {"run": w.run, "wait": w.token, "tool": w.tool, "summary": w.summary, **w.approval.to_json()}
            for w in inbox.waits
        ]
        report = {"waits": waits, "unanswered": inbox.unanswered, "unread": inbox.unread}
        return JSONResponse(report, headers={"X-CSRF-Token": request.state.visitor.csrf})  # for a page of this origin

    async def decide_json(self, request: Request) -> Response:
        """``{run, wait, version, subject, decision, reason?, …}``: docs/people.md; 409 for a wait that is over."""
        visitor = check_csrf(request, request.headers.get("x-csrf-token"))
        target = _read_seen((await request.body()).decode(errors="replace"))
        if not isinstance(reason := target.get("reason") or "", str):
            raise HTTPException(400, "nothing was sent: a reason is a text")
        names = {EDIT: ("call", "with"), ANSWER: ("output",)}.get(str(target.get("decision")), ())
        content = {k: target[k] for k in names if k in target} or None
        try:
            await self._send(target, visitor, str(target.get("decision")), reason, content)
        except StaleError as error:
            return JSONResponse({"ok": False, "problem": str(error)}, _CONFLICT)
        return JSONResponse({"ok": True})

    async def pending_events(self, request: Request) -> Response:  # noqa: ARG002 - it takes nothing
        """An event whenever the inbox changes: its data is a digest."""

        async def stream() -> AsyncIterator[bytes]:
            last, silent = "", 0.0
            while True:
                try:
                    now = (await self._inbox()).digest
                except (ClientError, RPCError):
                    now = last  # the server is away; the page keeps what it shows
                silent = 0.0 if now != last else silent + LOOK_SECONDS
                if now != last or silent >= BEAT_SECONDS:
                    yield f"data: {now}\n\n".encode() if now != last else b": \n\n"
                    last, silent = now, 0.0
                await asyncio.sleep(LOOK_SECONDS)

        return StreamingResponse(stream(), headers=_STREAM)

    async def events(self, request: Request) -> Response:
        """What happens in a run and below it, in AG-UI's types; ``Last-Event-ID`` reads on."""
        self._feeds = self._feeds or EventFeeds(self.client, AgUiStream)
        query, woken = request.query_params, asyncio.Event()
        types, calls = (frozenset(filter(None, query.get(name, "").split(","))) for name in ("type", "call"))
        wanted = EventFilter(types, calls, query.get("instance"), query.get("run"))
        after = request.headers.get("last-event-id") or query.get("after", "")
        id_ = str(request.path_params["id"])
        with explained(self.client, id_):
            watch = await self._feeds.open(id_, woken.set, after=after, wanted=wanted)

        async def stream() -> AsyncIterator[bytes]:
            try:
                while True:
                    woken.clear()
                    content, has_all = watch.take()
                    yield content or b": \n\n"
                    if has_all and not content:
                        return
                    if not has_all:
                        with suppress(TimeoutError):
                            await asyncio.wait_for(woken.wait(), BEAT_SECONDS)
            except (WatchRefused, EventsRefused, RPCError):
                return  # the reader comes back with its last offset
            finally:
                watch.close()

        return StreamingResponse(stream(), headers=_STREAM)

    async def _form(self, request: Request) -> tuple[Any, Visitor]:
        form = await request.form(max_fields=MAX_FORM_FIELDS, max_part_size=MAX_BODY)
        return form, check_csrf(request, form.get("csrf"))


class StaleError(ActsError):
    """What waits is not what was shown."""


def _form_of(wait: Wait | None) -> Mapping[str, Any] | None:
    """The schema of what a person answers; None: the wait is for a decision."""
    if wait is None or wait.approval.what != ANSWER:
        return None
    form = (wait.approval.content or {}).get(FORM)
    return form if isinstance(form, dict) else {}


def _which(query: Mapping[str, Any]) -> tuple[str, str, str]:
    return query.get("run", ""), query.get("wait", ""), str(query.get("at", ""))


def _read_json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # no message carries half of a surrogate pair
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise HTTPException(400, "nothing was sent: this is no JSON object")
    return value


def _read_seen(text: str) -> dict[str, Any]:
    """What a form, or a program, says that it was shown: ``{run, wait, version, subject, …}``."""
    value = _read_json(text)
    kinds = {"run": str, "wait": str, "version": int, "subject": str}
    if missing := [name for name, kind in kinds.items() if type(value.get(name)) is not kind]:
        raise HTTPException(400, f"nothing was sent: a decision names what was seen, and {missing[0]} is missing")
    return value
