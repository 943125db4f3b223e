"""Adds the engine to a worker: ``Worker(client, …, plugins=[acts.Plugin()])``, as the SDK's own plugins do.

The worker keeps its workflows and its Activities, which become Tools that a plan may name. It gets the engine's
workflows, Activities and interceptors, and a failure converter that no foreign failure breaks. ``acts worker`` adds
hardening (``serve.py``); ``docs/clients.md`` says what a worker without it does not promise.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any, Final

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHistory
from temporalio.converter import DataConverter, DefaultFailureConverter
from temporalio.plugin import SimplePlugin
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, WorkflowInstance

from acts.activities.ask_model import ask_model
from acts.activities.models.adapters import close_clients
from acts.activities.plan_folders import PLAN_FOLDERS, read_plans
from acts.activities.read_past_run import PastRuns
from acts.activities.registry import Registry, activity_name, missing_activity, refuse_same_name, refuse_unanswered
from acts.activities.run_setup import Caps, Loader, check_queues, check_search_attributes, look_up_approvers
from acts.activities.secret_interceptor import SecretInterceptor
from acts.activities.set_work import SetActivities
from acts.delegates.sources import read_folders
from acts.machines.plan_run import PlanRun
from acts.machines.set_run import SetRun
from acts.payloads.converter import describe_converter, worker_converter
from acts.payloads.storage_gc import claim_storage
from acts.telemetry.failures import EngineFailureConverter
from acts.telemetry.tracing import Tracing
from acts.tree.past_run import PastRun
from acts.worker.interceptors import EngineInterceptor, Step
from acts.worker.kept_outcomes import KeptOutcomes
from acts.worker.settings import Settings
from acts.worker.slots import visit_payloads_our_way
from acts.workflows import types
from acts.workflows.handlers import RunWorkflow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from temporalio.runtime import Runtime
    from temporalio.worker import Worker, WorkerConfig, WorkflowInstanceDetails

WORKFLOWS: Final[list[type]] = [
    types.PlanWorkflow, types.BackgroundWorkflow, types.AgentWorkflow, types.DelegateWorkflow, types.InstanceWorkflow,
    types.BatchWorkflow,
]  # fmt: skip
# The server gives up a workflow task after 10 s, so one that takes longer is lost anyway. The SDK's detector would fail
# each task of two seconds, and the server begins it again, for ever: a plan of ten thousand Calls takes longer
DEADLOCK_SECONDS: Final = 10.0


class Plugin(SimplePlugin):
    """The engine as a plugin of a worker. ``tools`` are schemas of Tools by name, for Requests that only name them.

    Settings of the engine (delegates, sets, secrets, models …) come from the environment: ``settings.py`` lists them.
    A worker that is hardened hands over its ``registry``, and the steps around each Activity: ``observe``, ``announce``
    (takes the secrets of each Call) and ``run_tools`` (makes the step that runs them, of the names of our Activities).
    """

    def __init__(
        self, tools: Mapping[str, dict[str, Any]] | None = None, *, settings: Settings | None = None,
        registry: Registry | None = None, observe: Step | None = None, tracing: Tracing | None = None,
        announce: Callable[[Iterable[str]], None] = lambda _secrets: None,
        run_tools: Callable[[Iterable[str]], Step] | None = None, deadlock_seconds: float | None = DEADLOCK_SECONDS,
    ) -> None:  # fmt: skip
        super().__init__("acts", workflows=WORKFLOWS, data_converter=_choose_converter)
        self._settings = settings or Settings.from_environment()
        self._tools, self._registry = dict(tools or {}), registry
        self._observe, self._tracing, self._announce, self._run_tools = observe, tracing, announce, run_tools
        self._deadlock_seconds = deadlock_seconds
        self.allows_eager_start: Callable[..., bool] = lambda **_: True  # of slots that tell runs apart
        self._outcomes = KeptOutcomes()

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        config = super().configure_worker(config)
        visit_payloads_our_way()
        users: Sequence[Callable[..., Any]] = config.get("activities") or ()
        # ``acts.activities`` has a list of its Tools among them: the engine's own list takes its place
        owners = [getattr(function, "__self__", None) for function in users]
        users = [user for user, owner in zip(users, owners, strict=True) if not isinstance(owner, Registry)]
        for owner in owners:
            self._tools |= owner.tools if isinstance(owner, Registry) else {}
        self._registry = registry = self._registry or self._own_registry(users)
        client = config["client"]
        own = own_activities(client, self._settings, registry)
        names = [activity_name(function) for function in own]
        definitions = [getattr(user, "__temporal_activity_definition", None) for user in users]
        serves_all_names = any(definition is not None and not definition.name for definition in definitions)
        others = [] if serves_all_names else [missing_activity]
        if not serves_all_names:
            refuse_unanswered(self._tools, registry.names, dict.fromkeys(self._tools, "the plugin"))
        config["activities"] = [*dict.fromkeys((*users, *registry.activities)), *own, *others]
        config["identity"] = config.get("identity") or registry.identity + describe_converter(client.data_converter)
        secrets = SecretInterceptor(registry, self._settings.secrets, self._announce)
        steps: list[Step] = [registry.refuse_missing, secrets]
        steps += [self._run_tools(names)] if self._run_tools is not None else []
        engine = EngineInterceptor(client, observe=self._observe, steps=steps, tracing=self._tracing)
        self._outcomes = engine.rooms.outcomes
        engine.shows_page = self._settings.page == "on"
        engine.allows_eager_start = self.allows_eager_start
        engine.current_tools, engine.limited = (registry.tools, registry.names), self._settings.limits
        config["interceptors"] = [engine, *(config.get("interceptors") or ())]
        # The SDK would fail, for ever, each task in which it has to refuse an update of more than 2 MB: it sends
        # the whole update back. The server drops such an update alone. All else that we send is measured before
        config["disable_payload_error_limit"] = True
        return config

    def forget_outcomes(self) -> None:
        """Memory is short: outcomes of Activities are not kept."""
        self._outcomes.forget()

    def _own_registry(self, users: Sequence[Callable[..., Any]]) -> Registry:
        plans = read_plans(read_folders(PLAN_FOLDERS, self._settings.plans))
        refuse_same_name(plans, dict.fromkeys(self._tools, "the plugin"))
        return Registry(self._tools, tuple(users), plans=plans)

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:  # noqa: A002 - the SDK's name
        for part in ("_workflow_worker", "_activity_worker"):
            replace_private(worker, part, "_data_converter", _with_engine_failures)
        # ``debug_mode`` also switches the SDK's detector off, but runs workflow tasks in the event loop: a long one
        # would stop all Activities and heartbeats of the worker. There is no public setting for the timeout alone
        replace_private(worker, "_workflow_worker", "_deadlock_timeout_seconds", lambda _: self._deadlock_seconds)
        servers = (self._registry or Registry({}, ())).servers
        servers.start()
        reporting = asyncio.create_task(self._outcomes.report_lost(worker.client))
        try:
            await claim_storage(worker.client)
            await super().run_worker(worker, next)
        finally:
            reporting.cancel()
            await servers.stop()
            await close_clients()


def own_activities(client: Client, settings: Settings, registry: Registry) -> list[Callable[..., Any]]:
    """The engine's own Activities. They do not block, so they run in the worker's own loop."""

    async def read_past(history: WorkflowHistory, run_id: str, children: Mapping[str, str]) -> Any:
        # A thread with a loop of its own: a long task would stop the loop of a worker, and the SDK's detector, which
        # fails each task of two seconds, is off in debug mode only, in which tasks run in the loop
        return await asyncio.to_thread(asyncio.run, replay(history, client.data_converter, run_id, children))

    past_runs = PastRuns(read_past)
    sets = SetActivities(settings.set_sources, past_runs.rows)
    caps = Caps(settings.max_parallel, settings.max_cost, settings.day_cost)
    return [
        *registry.own_activities(), ask_model, check_queues, look_up_approvers, check_search_attributes,
        caps.look_up,
        Loader(settings.delegate_sources, registry.plans).load_delegate, past_runs.read_past_run, *sets.all(),
    ]  # fmt: skip


def engine_converter() -> DataConverter:
    """The converter of a worker in this environment: pydantic's JSON, keys and storage if they are set."""
    return worker_converter(EngineFailureConverter)


def _choose_converter(present: DataConverter | None) -> DataConverter:
    if present is None or present == DataConverter.default:
        return engine_converter()
    return _with_engine_failures(present)


def _with_engine_failures(converter: DataConverter) -> DataConverter:
    if converter.failure_converter_class is not DefaultFailureConverter:
        return converter
    return dataclasses.replace(converter, failure_converter_class=EngineFailureConverter)


def replace_private(worker: Any, part: str, name: str, replace: Callable[[Any], Any]) -> None:
    """Replace what the SDK has no setting for in one part of a worker: it takes the client's converter for all."""
    inner = getattr(worker, part, None)
    if inner is None or not hasattr(inner, name):
        raise RuntimeError(f"this version of temporalio has no Worker.{part}.{name}; 1.35 has it")
    setattr(inner, name, replace(getattr(inner, name)))


# == replays ================================================================================
# Ends that no workflow task has decided: the code has not seen them, and makes no command of them
_FORCED_ENDS: Final = (
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT,
)  # fmt: skip
# Events after which there is nothing to apply: those that end a run, and the beginning of a task
_LAST: Final = (
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
    EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED,
)  # fmt: skip


def build_replayer(runtime: Runtime | None = None, runner: Capture | None = None) -> Replayer:
    """What replays histories as a worker of this checkout does; without the SDK's deadlock detector."""
    visit_payloads_our_way()
    converter, engine = engine_converter(), EngineInterceptor()
    return Replayer(
        workflows=WORKFLOWS, data_converter=converter, interceptors=[engine], debug_mode=True, runtime=runtime,
        unsandboxed_workflow_runner=runner or UnsandboxedWorkflowRunner(),
    )  # fmt: skip


class Capture(UnsandboxedWorkflowRunner):
    """Keeps the workflow that it has run: its object has the run's state when the SDK has given the run up."""

    instance: Any = None

    @property
    def run(self) -> RunWorkflow | None:
        run = getattr(self.instance, "_object", None)
        return run if isinstance(run, RunWorkflow) else None

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        self.instance = super().create_instance(det)
        return self.instance  # type: ignore[no-any-return]


async def replay(
    history: WorkflowHistory, converter: DataConverter, run_id: str, children: Mapping[str, str]
) -> PastRun | str | None:
    """What a run had done, by a replay of its history to its end; None if it walks no plan. Or why it does not replay.

    ``children`` are the runs that it had started: run id by workflow id.
    """
    capture = Capture()
    replayer = Replayer(
        workflows=WORKFLOWS, unsandboxed_workflow_runner=capture, data_converter=converter, debug_mode=True,
    )  # fmt: skip
    result = await replayer.replay_workflow(complete_last_task(history), raise_on_replay_failure=False)
    if result.replay_failure is not None:
        return str(result.replay_failure)
    if (run := capture.run) is None:
        return None
    if run.machine is None:  # it ended before it began
        return PastRun(workflowId=history.workflow_id, runId=run_id)
    if isinstance(run.machine, SetRun):
        return run.machine.read_facts(run_id)
    return run.machine.read_facts(run_id, children) if isinstance(run.machine, PlanRun) else None


def complete_last_task(history: WorkflowHistory) -> WorkflowHistory:
    """The history up to a workflow task that sees every event, such as the result of an Activity in a run that runs."""
    events = list(history.events)
    while events and events[-1].event_type in _FORCED_ENDS:
        events.pop()
    if events and events[-1].event_type not in _LAST:
        if events[-1].event_type != EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED:
            scheduled = _event_after(events[-1], EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED)
            scheduled.workflow_task_scheduled_event_attributes.attempt = 1
            events.append(scheduled)
        started = _event_after(events[-1], EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED)
        started.workflow_task_started_event_attributes.scheduled_event_id = events[-1].event_id
        events.append(started)
    return WorkflowHistory(history.workflow_id, events)


def _event_after(last: HistoryEvent, type_: EventType.ValueType) -> HistoryEvent:
    return HistoryEvent(event_id=last.event_id + 1, event_time=last.event_time, event_type=type_)
