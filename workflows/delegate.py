"""``Delegate``: does one delegated Call in a clean room. An agent of its own, mostly.

It is started with an errand, and with nothing else of its parent. A definition is loaded
here, by an activity, so that its content stands in this history alone; ``anonymous`` has
none, and is one Call of one Tool; one whose plan says ``run`` is walked as it stands.
"""

from __future__ import annotations

from typing import Any, Final

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError, ChildWorkflowError, is_cancelled_exception

from acts.language.errors import CallError, InvalidRequest, Problem, truncate
from acts.language.messages import Request, output_schema
from acts.language.schemas import checker
from acts.language.usage import Usage
from acts.language.values import pointer
from acts.language.wire import ANONYMOUS, BUDGET_SPENT, DELEGATE, PLAN, PLAN_FAILED, SCHEMA_MISMATCH
from acts.machines.commands import StartCall
from acts.plan.validate import ValidatedPlan, validate_parsed
from acts.tree.decisions import REJECT
from acts.tree.delegation import Place, anonymous_request, delegate_request, plan_output
from workflows.agent import AgentWorkflow
from workflows.asking import OPTIONS, Asking, material, own_context
from workflows.dispatch import Dispatcher, call_error
from workflows.parent import failed_with
from workflows.payloads import NOTHING, decode, dump, encode, hand, handed, raw, unpack
from workflows.plan import FATAL
from workflows.purse import Purse
from workflows.requests import load_definition

# Of what went wrong inside, this much is told to the parent
MAX_ERRORS_TOLD: Final = 20


@workflow.defn(name=DELEGATE, failure_exception_types=FATAL)
class DelegateWorkflow(AgentWorkflow):
    """What is behind a Call with ``_delegate``."""

    def __init__(self) -> None:
        super().__init__()
        self._errand: dict[str, Any] = {}
        self._origin: dict[str, str] = {}
        self._alone: ValidatedPlan | None = None
        self._spent_here = Usage()
        self._walks = False

    @workflow.run
    async def run(self, errand: RawValue = NOTHING) -> RawValue:
        """``errand`` is what the run above handed over, or the run before."""
        return await self._guarded(errand)

    async def _request_of(self, given: RawValue) -> Any:
        errand = handed(given)
        if errand is None:
            text = "a Delegate is started by a run whose Call delegates to it"
            raise InvalidRequest([Problem("invalidRequest", text, hint="start an Agent with the definition instead")])
        self._errand = errand
        self._place = Place.from_json(errand["tree"])
        if errand["delegate"] == ANONYMOUS:
            return anonymous_request(errand)
        workflow.set_current_details("**loading** the definition")
        found = await self._loaded(errand)
        self._origin = {"source": found["source"], "sha256": found["sha256"]}
        return delegate_request(errand, found["definition"])

    @staticmethod
    async def _loaded(errand: dict[str, Any]) -> dict[str, Any]:
        try:
            return await load_definition(errand["delegate"], errand.get("sha256"))
        except ActivityError as error:
            cause = error.__cause__
            if is_cancelled_exception(error) or not isinstance(cause, ApplicationError):
                raise
            raise ApplicationError(cause.message, type=cause.type, non_retryable=True) from None

    async def _work(self, parsed: Request, carried: dict[str, Any]) -> RawValue:
        self._origin = carried.get("origin", self._origin)
        self._walks = self._errand.get("delegate") == ANONYMOUS or (
            parsed.plan is not None and parsed.plan.run and not carried
        )
        if self._errand.get("delegate") == ANONYMOUS:
            return await self._one_call(parsed)
        if self._walks:
            return await self._as_it_stands(parsed)
        return await super()._work(parsed, carried)

    def _ready(self) -> bool:
        """A room that walks, or does one Call, has nothing of its own that waits: what does is below it."""
        return self._walks or super()._ready()

    def _more_carried(self) -> dict[str, Any]:
        return {"origin": self._origin}

    def _delivered(self, result: dict[str, Any]) -> RawValue:
        """What the parent is given: the output, and what it must know besides."""
        out: dict[str, Any] = {k: result[k] for k in ("status", "output", "ticks", "usage", "decisions") if k in result}
        out["definition"] = self._origin
        if result["status"] != "completed":
            out["errors"] = result["errors"][-MAX_ERRORS_TOLD:]
        return self._handed_back(out)

    def _handed_back(self, out: dict[str, Any]) -> RawValue:
        """A result as it is recorded; one that is too large is this Call's failure, and costs what it cost."""
        try:
            return encode(out)
        except CallError as error:
            told = raw(dump({"status": "failed", **{k: out[k] for k in ("usage", "decisions") if k in out}}))
            raise ApplicationError(error.message, told, type=error.code, non_retryable=True) from None

    # -- a definition that is walked as it stands ----------------------------------

    async def _as_it_stands(self, parsed: Request) -> RawValue:
        self._show("running")
        try:
            await self._purse.more_calls(parsed.calls_of(parsed.plan.calls if parsed.plan is not None else ()))
        except CallError as error:
            raise self._failure(error) from error
        given = hand({"request": self._raw, "tree": self._place.to_json()})
        label = f"the plan of {truncate(self._errand['delegate'], 150)}"
        try:
            ended = await self._children.run(PLAN, "plan", given, label, ended=self._desk.forget)
        except ChildWorkflowError as error:
            if is_cancelled_exception(error):
                raise
            failed = call_error(error, OPTIONS, workflow.info().task_queue)
            found = failed_with(error)
            found = found if isinstance(found, dict) else {}
            rest = {"usage": found.get("usage") or Usage().to_json(), "decisions": found.get("decisions") or []}
            raise ApplicationError(failed.message, rest, type=failed.code, non_retryable=True) from None
        result = unpack(ended) or decode(ended)
        status, errors = result["status"], result["errors"]
        out = {"status": status, "usage": result["usage"], "definition": self._origin}
        if result.get("decisions"):
            out["decisions"] = result["decisions"]
        if status != "completed":
            why = "; ".join(f"{e['call']}: [{e['code']}] {truncate(str(e['message']), 300)}" for e in errors[:5])
            why = why or f"its plan was {status}" + _reason(result.get("decisions") or [])
            told = raw(dump({**out, "errors": errors[-MAX_ERRORS_TOLD:]}))
            raise ApplicationError(why, told, type=PLAN_FAILED, non_retryable=True)
        output = plan_output(parsed.data(), result["context"])
        schema = output_schema(parsed.schema)
        defects = [] if schema is None else checker(schema).defects(output)
        if defects:
            why = "; ".join(f"{pointer(*at) or 'it'}: {text}" for at, text in defects[:5])
            text = f"what the plan yields breaks the definition's schema: {why}"
            raise ApplicationError(text, raw(dump(out)), type=SCHEMA_MISMATCH, non_retryable=True)
        self._show("completed")
        return self._handed_back({**out, "output": output})

    # -- one Call of one Tool --------------------------------------------------------

    async def _one_call(self, parsed: Request) -> RawValue:
        """``anonymous``: what is behind the Tool, with the scopes for all of its context."""
        self._purse = Purse(parsed.config.budget, self._place.bank)
        tool = self._errand["tool"]
        served = [tool["name"]] if tool["served"] else []
        self._alone = prepared = validate_parsed(parsed, {}, served)
        node = prepared.nodes[0]
        call = {**node.call, **self._errand["input"], "_id": self._errand["id"]}
        command = StartCall(0, node, call, self._errand["context"])
        workflow.set_current_details(f"**running** {node.id}")
        out: dict[str, Any] = {"status": "completed"}
        try:
            if node.kind == "latent":
                asking = Asking(parsed.config, own_context(len(parsed.context)), self._spent_here, self._purse)
                task = asking.start(command, 0)
                await workflow.wait_condition(task.done)
                out["output"], out["path"] = asking.settled(task)
            else:
                dispatch = Dispatcher()
                args, _ = dispatch.arguments(command)
                value = await dispatch.activity(node, args)
                out["output"] = None if value is None else decode(value)
        except CallError as error:
            await self._purse.told()
            raise self._failure(error) from error
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            await self._purse.told()
            failed = call_error(
                error, OPTIONS if node.kind == "latent" else node.tool.options, workflow.info().task_queue
            )
            raise self._failure(failed) from None
        await self._purse.told()
        workflow.set_current_details("**completed**")
        return self._handed_back({**out, "usage": self._spent_here.to_json()})

    def _failure(self, error: CallError) -> ApplicationError:
        told = raw(dump({"status": "failed", "usage": self._spent_here.to_json()}))
        return ApplicationError(error.message, told, type=error.code or BUDGET_SPENT, non_retryable=True)

    def _material(self, page: Any) -> dict[str, Any]:
        if self._alone is None:
            return super()._material(page)
        return material(self._alone.request, self._alone.tools.values(), "lazy", page)


def _reason(decisions: list[dict[str, Any]]) -> str:
    """Why somebody rejected a plan, for the end of a sentence."""
    said = [d.get("reason") for d in decisions if (d.get("what"), d.get("decision")) == ("plan", REJECT)]
    return f": {truncate(str(said[-1]), 300)}" if said and said[-1] else ""
