"""``acts.Client``: starts plans, follows them to any end, and sends decisions. ``acts.SyncClient`` blocks instead.

- A client has the connection that the command line has: the same server, keys and storage.
- ``result`` raises nothing: it is one object for every end. All else raises ``ClientError`` for what cannot be done.
- There is one implementation, which is asynchronous. A ``SyncClient`` runs it in an event loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Literal, ParamSpec, Self, TypedDict, TypeVar, Unpack

from acts.client import run_decisions, server
from acts.client.client_errors import ClientError, NoSuchRunError, explained
from acts.client.event_stream import stream_events
from acts.client.run_reader import RunReader, RunResult, add_parameters, read_pending, read_progress, wait_for_outcome
from acts.client.served import workflow_of_plan
from acts.client.start_runs import IdPolicy, OnceEnded, WhileRunning, make_request, read_plan_file, start_run, undo_run
from acts.language import wire
from acts.language.errors import InvalidRequest
from acts.language.messages import choose_workflow, counting_now, read_request
from acts.tree.decisions import Decision, PendingApproval, Remember
from acts.views.run_events import EventFilter, RunEvent

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from temporalio import client as sdk

P = ParamSpec("P")
T = TypeVar("T")

# A query costs the worker a look at the run
FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 2.0


class About(TypedDict, total=False):
    """What tells one of several waits from the rest; ``by`` is who decides, else the login name.

    ``version`` and ``subject`` are those that were seen: anything else is refused.
    """

    by: str | None
    version: int | None
    subject: str | None
    instance: str | None
    workflow_id: str | None


class Run:
    """A run of an id, whether it exists or not: the latest one, or the one of ``run_id``."""

    def __init__(
        self, temporal: sdk.Client, id: str, run_id: str | None = None, *, key: Ed25519PrivateKey | None = None  # noqa: A002 - as Temporal
    ) -> None:  # fmt: skip
        self.id, self.run_id, self._temporal, self._key = id, run_id, temporal, key

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    @property
    def _reader(self) -> RunReader:
        return RunReader(self._temporal, self.id, self.run_id)

    async def result(self, timeout: float | None = None) -> RunResult:  # noqa: ASYNC109 - it is no error
        """How the run ends: waits for that, at most ``timeout`` seconds. Raises nothing; see ``RunResult.require``."""
        try:
            with explained(self._temporal, self.id):
                return await asyncio.wait_for(wait_for_outcome(self._reader.handle), timeout)
        except TimeoutError:
            return self._unknown("running", "StillRunning", f"it has not ended within {timeout:g} s")
        except NoSuchRunError as error:
            return self._unknown("notFound", "NoSuchRun", str(error))
        except ClientError as error:
            return self._unknown("unavailable", "Unavailable", str(error))

    def _unknown(self, status: str, type_: str, text: str) -> RunResult:
        return RunResult(status, error={"type": type_, "message": text}, id=self.id)

    async def status(self) -> dict[str, Any]:
        """The run as it is now: ``{phase, calls, usage, pending?, waits?, …}``, with the live states of its Calls."""
        reader = self._reader
        with explained(self._temporal, self.id):
            await reader.describe()
            return await reader.require(read_progress(reader))

    async def pending(self) -> list[PendingApproval]:
        """What waits for a person in this run and below it, with all that is decided; of an ended run nothing."""
        reader = self._reader
        with explained(self._temporal, self.id):
            if (await reader.describe()).close_time is not None:
                return []
            return await add_parameters(reader, await reader.require(reader.pending()))

    async def wait_for_decision(self, timeout: float | None = None) -> list[PendingApproval]:  # noqa: ASYNC109 - as above
        """What waits for a person, as soon as something does; [] at the end of the run or of the time (seconds)."""
        await self._reader.describe()
        ending = asyncio.ensure_future(wait_for_outcome(self._reader.handle))
        try:
            with explained(self._temporal, self.id):
                return await asyncio.wait_for(self._follow(ending), timeout)
        except TimeoutError:
            return []
        finally:
            ending.cancel()

    async def _follow(self, ending: asyncio.Future[RunResult]) -> list[PendingApproval]:
        pause = FIRST_PAUSE_SECONDS
        while not ending.done():
            if approvals := await self._reader.pending():
                return await add_parameters(self._reader, approvals)
            await asyncio.wait([ending], timeout=pause)
            pause = min(pause * 1.5, LONGEST_PAUSE_SECONDS)
        await ending
        return []

    async def events(
        self, after: str = "", *, follow: bool = True, wanted: EventFilter | None = None
    ) -> AsyncGenerator[RunEvent]:
        """What happens in the run and below it, in order, from its beginning or ``after`` an offset (docs/clients.md).

        Until all has ended, or without ``follow`` until now. EventsRefused: the offset is none of this run.
        """
        with explained(self._temporal, self.id):
            async for event in stream_events(
                self._temporal, self.id, run_id=self.run_id, after=after, follow=follow, wanted=wanted
            ):
                yield event

    async def approve(
        self, call: str | None = None, *, note: str | None = None, remember: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> None:  # fmt: skip
        """Let a plan or a Call run that waits.

        ``remember``, ``{when?, count?, until?}``, approves like Calls that follow, too, until ``revoke``.
        """
        limits = None if remember is None else Remember.model_validate(dict(remember))
        await self._decide(wire.APPROVE, call=call, reason=note, remember=limits, **about)

    async def answer(
        self, output: Any, call: str | None = None, *, note: str | None = None, **about: Unpack[About]
    ) -> None:
        """Answer what a person is asked: ``output`` fits the ``form`` of the question, else it is refused."""
        await self._decide(wire.ANSWER, call=call, reason=note, output=output, **about)

    async def revoke(self, name: str, *, by: str | None = None) -> None:
        """Ask about Calls again that somebody has approved from now on; ``status`` has them under ``remembered``."""
        sent = {"decision": wire.REVOKE, "remembered": name, "by": by or run_decisions.login_name()}
        with explained(self._temporal, self.id):
            root = await self._reader.root()
            await root.ask(
                run_decisions.send_update(root, wire.DECIDE, {k: v for k, v in sent.items() if v is not None})
            )

    async def reject(self, reason: str, call: str | None = None, **about: Unpack[About]) -> None:
        """Do not let it run; an agent plans again with the reason."""
        await self._decide(wire.REJECT, call=call, reason=reason, **about)

    async def edit(
        self, new: Sequence[Any] | Mapping[str, Any], call: str | None = None, *, note: str | None = None,
        **about: Unpack[About],
    ) -> None:  # fmt: skip
        """Change pending Calls: ``new`` is a list of Calls, or the new form of the one ``call``. It waits again."""
        content = {"with": dict(new)} if isinstance(new, Mapping) else {"plan": list(new)}
        await self._decide(wire.EDIT, content, call=call, reason=note, **about)

    async def _decide(self, word: str, content: dict[str, Any] | None = None, **fields: Any) -> None:
        reader, decision = self._reader, Decision.model_construct(decision=word, **fields)
        with explained(self._temporal, self.id):
            approval = await run_decisions.find_approval(reader, decision)
            sign = None if self._key is None else functools.partial(self._sign, self._key, decision.subject)
            await run_decisions.send_decision(reader, decision, approval, content=content, sign=sign)

    @staticmethod
    async def _sign(
        key: Ed25519PrivateKey, subject: str | None, waiting: RunReader, approval: PendingApproval, sent: dict[str, Any]
    ) -> dict[str, Any]:
        if sent["decision"] in (wire.APPROVE, wire.ANSWER) and subject is None:
            hint = "pass subject=approval.subject of the one that you have looked at"
            raise ClientError("a signed approval names its subject", hint)
        return run_decisions.with_signature(key, await run_decisions.read_signable(waiting, approval), sent)

    async def undo(self, reason: str | None = None, *, by: str | None = None) -> Run:
        """Undo what has completed, in reverse order; returns the run that does. Again, it is the same one.

        A run that has not ended is undone where it waits for a decision: nothing more of it runs, and it returns
        itself. ClientError: nothing is to be undone, or nothing waits.
        """
        reader = self._reader
        with explained(self._temporal, self.id):
            if (await reader.describe()).close_time is not None:
                return Run(self._temporal, (await undo_run(reader))[0].id)
        await self._decide(wire.UNDO, by=by, reason=reason)
        return self

    async def provide(self, message: Mapping[str, Any], *, when: Literal["next", "now"] = "next") -> None:
        """Send the run a data, input or state Message, or an agent a user's text. It counts after the tick of an agent;
        ``now``: what has not started of this tick does not, and the agent plans again at once.
        """
        with explained(self._temporal, self.id):
            await run_decisions.send_update(
                self._reader, wire.PROVIDE, dict(message) if when == wire.NEXT else counting_now(dict(message))
            )

    async def cancel(self) -> None:
        """Cancel the run: running Calls are cancelled, no more start. ClientError: it has ended already."""
        reader = self._reader
        await reader.describe_running()  # the server accepts the request for a run that has ended, without any effect
        await reader.ask(reader.handle.cancel(rpc_timeout=server.RPC))

    async def pause(self) -> None:
        """Start no more Calls; running ones continue."""
        await self._reader.ask(self._reader.handle.signal(wire.PAUSE, rpc_timeout=server.RPC))

    async def resume(self) -> None:
        """Start Calls again after ``pause``."""
        await self._reader.ask(self._reader.handle.signal(wire.RESUME, rpc_timeout=server.RPC))


class Client:
    """A client of one server: ``await Client.connect()``, or ``Client(temporal)`` over a client that there is."""

    def __init__(
        self, temporal: sdk.Client, *, task_queue: str | None = None, key: str | Path | None = None
    ) -> None:  # fmt: skip
        self.temporal, self.task_queue = temporal, task_queue or server.task_queue()
        self._key = None if key is None else run_decisions.read_signing_key(key)

    @classmethod
    async def connect(
        cls, address: str | None = None, *, namespace: str | None = None, task_queue: str | None = None,
        key: str | Path | None = None,
    ) -> Self:  # fmt: skip
        """Connect to the server that the command line would use, or to ``address``. ClientError: none answers.

        ``key``: the file of the private key (``acts keygen``) that signs each decision.
        """
        target = server.find_target(address)
        if namespace is not None:
            target.config["namespace"] = namespace
        return cls(await server.connect(target, interceptors=()), task_queue=task_queue, key=key)

    async def start(
        self, plan: str | Path | Mapping[str, Any], input: Mapping[str, Any] | None = None, *, id: str | None = None,  # noqa: A002 - the words of the protocol
        agent: bool | None = None, if_running: WhileRunning = "use-existing", if_ended: OnceEnded | None = None,
        delay: float | None = None, tags: Mapping[str, str] | None = None,
    ) -> Run:  # fmt: skip
        """Start a plan by its name, or the Request of a file or a dict, with ``input`` as †input.

        ``agent`` says whether a model plans; None leaves that to the Request, of a name to the worker that serves it.

        With an ``id`` of your own the start may be repeated: the run that has the id is returned, whether it runs or
        has ended. ``if_running`` (``fail``, ``terminate``) and ``if_ended`` (``again``, ``again-if-failed``, ``fail``)
        say otherwise. ClientError: the run that has the id was started with another plan or input.

        ``tags`` such as ``{"customer": "c-17"}`` are those by which ``acts list --tag`` finds the run.
        """
        name = plan if isinstance(plan, str) else plan.stem if isinstance(plan, Path) else "run"
        plan = read_plan_file(plan) if isinstance(plan, Path) else plan
        request = make_request(plan, input, tags)
        policy = IdPolicy(if_running, if_ended, delay)
        run_id = f"{name}-{secrets.token_hex(4)}" if id is None else id
        workflow = await self._choose_workflow(plan) if agent is None else wire.AGENT if agent else wire.PLAN
        await start_run(self.temporal, workflow, request, run_id, policy, self.task_queue, name)
        return self.run(run_id)

    async def _choose_workflow(self, plan: str | Mapping[str, Any]) -> str:
        if isinstance(plan, str):
            return await workflow_of_plan(self.temporal, self.task_queue, plan)
        try:
            return wire.AGENT if choose_workflow(read_request(dict(plan)))[0] else wire.PLAN
        except InvalidRequest:
            return wire.PLAN  # which reports what is wrong with it

    def run(self, id: str, run_id: str | None = None) -> Run:  # noqa: A002 - as Temporal
        """The run of an id, to follow or to decide. Asks no server."""
        return Run(self.temporal, id, run_id, key=self._key)

    async def pending(
        self, tool: str | None = None, older_than: float | None = None
    ) -> list[tuple[str, PendingApproval]]:
        """What waits for a person in all runs, with the id of each, the oldest first.

        Only Calls of a ``tool``, and plans that have one; only those pending for ``older_than`` seconds.
        """
        with explained(self.temporal):
            report = await read_pending(None, tool, older_than, client=self.temporal)
        return [(id_, approval) for id_, listed in report.approvals for approval in listed]

    async def close(self) -> None:
        """Let go of the server. Runs continue."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


# -- the same, blocking ----------------------------------------------------------------------------


class _LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="acts-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:  # Ctrl-C too: nobody waits any more
            future.cancel()
            raise

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


def _blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """A method that waits for the end of the asynchronous one."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = self._thread.run(method(self._inner, *args, **kwargs))
        return result

    return call


def _blocking_start(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, Run]],
) -> Callable[Concatenate[Any, P], SyncRun]:
    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> SyncRun:
        return SyncRun(self._thread.run(method(self._inner, *args, **kwargs)), self._thread)

    return call


class SyncRun:
    """``Run``, blocking."""

    def __init__(self, inner: Run, thread: _LoopThread) -> None:
        self.id, self.run_id, self._inner, self._thread = inner.id, inner.run_id, inner, thread

    result = _blocking(Run.result)
    status = _blocking(Run.status)
    pending = _blocking(Run.pending)
    wait_for_decision = _blocking(Run.wait_for_decision)

    def events(self, after: str = "", *, follow: bool = True, wanted: EventFilter | None = None) -> Iterator[RunEvent]:
        """As ``Run.events``."""
        stream = self._inner.events(after, follow=follow, wanted=wanted)
        try:
            while (event := self._thread.run(anext(stream, None))) is not None:
                yield event
        finally:
            self._thread.run(stream.aclose())

    approve = _blocking(Run.approve)
    reject = _blocking(Run.reject)
    answer = _blocking(Run.answer)
    revoke = _blocking(Run.revoke)
    edit = _blocking(Run.edit)
    provide = _blocking(Run.provide)
    cancel = _blocking(Run.cancel)
    undo = _blocking_start(Run.undo)
    pause = _blocking(Run.pause)
    resume = _blocking(Run.resume)


class SyncClient:
    """``Client``, blocking: ``with SyncClient.connect() as client``. Any thread may use it."""

    def __init__(self, inner: Client, thread: _LoopThread) -> None:
        self._inner, self._thread = inner, thread

    @classmethod
    def connect(
        cls, address: str | None = None, *, namespace: str | None = None, task_queue: str | None = None,
        key: str | Path | None = None,
    ) -> Self:  # fmt: skip
        """As ``Client.connect``."""
        thread = _LoopThread()
        try:
            opened = thread.run(Client.connect(address, namespace=namespace, task_queue=task_queue, key=key))
            return cls(opened, thread)
        except BaseException:
            thread.close()
            raise

    start = _blocking_start(Client.start)
    pending = _blocking(Client.pending)

    def run(self, id: str, run_id: str | None = None) -> SyncRun:  # noqa: A002 - as Temporal
        """As ``Client.run``."""
        return SyncRun(self._inner.run(id, run_id), self._thread)

    def close(self) -> None:
        """As ``Client.close``."""
        self._thread.run(self._inner.close())
        self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
