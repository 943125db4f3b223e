"""The arguments of local Activities, passed within the process instead of by way of the SDK's core.

A local Activity runs in the process of its workflow task, and history has none of its arguments. In the command they
would be serialized, parsed, encoded and decoded four times for nothing. So the run keeps them, and the Activity takes
them from there, decoded anew for each attempt: what a Tool does to them concerns nobody else.

An entry lives as long as the handle of its Activity. Only a run that has left the cache has none; then nobody waits for
the Activity either: the next worker replays the run, and starts it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    StartLocalActivityInput,
    WorkflowInboundInterceptor,
    WorkflowOutboundInterceptor,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from temporalio.worker import WorkflowInterceptorClassInput


class KeptArguments:
    """The encoded arguments of one local Activity."""

    __slots__ = ("__weakref__", "values")

    def __init__(self, values: Sequence[RawValue]) -> None:
        self.values = values


# By run id and activity id
Arguments = WeakValueDictionary[tuple[str, str], KeptArguments]


class LocalArgumentsInterceptor(Interceptor):
    """Passes on the arguments of local Activities; place it before the interceptors that read arguments.

    ``own`` are the engine's Activities: what they look up stays in the command.
    """

    def __init__(self, own: Iterable[str]) -> None:
        self.arguments: Arguments = WeakValueDictionary()
        self._own = frozenset(own)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Give each local Activity its arguments."""
        return _Inbound(next, self.arguments, self._own)

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002, ARG002 - the SDK's name
    ) -> type[WorkflowInboundInterceptor]:
        """Keep the arguments of the local Activities that a run starts."""
        arguments, own = self.arguments, self._own

        class Inbound(WorkflowInboundInterceptor):
            def init(self, outbound: WorkflowOutboundInterceptor) -> None:
                super().init(_Outbound(outbound, arguments, own))

        return Inbound


class _Outbound(WorkflowOutboundInterceptor):
    def __init__(self, next: WorkflowOutboundInterceptor, arguments: Arguments, own: frozenset[str]) -> None:  # noqa: A002 - the SDK's name
        super().__init__(next)
        self._arguments, self._own = arguments, own
        self._run_id = ""

    def start_local_activity(self, input: StartLocalActivityInput) -> workflow.ActivityHandle[Any]:  # noqa: A002 - the SDK's name
        id_, values = input.activity_id, [arg for arg in input.args if isinstance(arg, RawValue)]
        if id_ is None or not values or len(values) < len(input.args) or input.activity in self._own:
            return super().start_local_activity(input)
        entry = KeptArguments(values)
        self._run_id = self._run_id or workflow.info().run_id
        self._arguments[self._run_id, id_] = entry
        input.args = ()
        handle = super().start_local_activity(input)
        handle.kept_arguments = entry  # type: ignore[attr-defined] # for as long as somebody waits
        return handle


class _Inbound(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, arguments: Arguments, own: frozenset[str]) -> None:  # noqa: A002 - the SDK's name
        super().__init__(next)
        self._arguments, self._own = arguments, own

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        info = activity.info()
        if info.is_local and info.activity_type not in self._own and _has_no_arguments(input):
            entry = self._arguments.get((info.workflow_run_id or "", info.activity_id))
            if entry is None:
                text = "the run that started this local activity has left the cache of its worker"
                raise ApplicationError(text, category=ApplicationErrorCategory.BENIGN)
            input.args = decode_arguments(input.fn, entry.values)
        return await super().execute_activity(input)


def _has_no_arguments(input: ExecuteActivityInput) -> bool:  # noqa: A002 - the SDK's name
    return not input.args or (_is_for_all_names(input.fn) and not input.args[0])


def _is_for_all_names(function: Callable[..., Any]) -> bool:
    """True for the Activity of every name that the worker does not have; it takes its arguments undecoded."""
    definition = getattr(function, "__temporal_activity_definition", None)
    return definition is not None and not definition.name


def decode_arguments(function: Callable[..., Any], values: Sequence[RawValue]) -> list[Any]:
    """The arguments as the SDK passes them to this Activity. The run goes on using ``values``: what stays undecoded,
    the Activity gets as a copy.

    Raises:
        ApplicationError: they do not fit its types.
    """
    if _is_for_all_names(function):
        return [[RawValue(_copy(value)) for value in values]]
    definition = getattr(function, "__temporal_activity_definition", None)
    types = None if definition is None else definition.arg_types
    if types is not None and len(types) != len(values):
        types = None
    has_raw = types is not None and RawValue in types
    payloads = [_copy(value) if has_raw else value.payload for value in values]
    try:
        return activity.payload_converter().from_payloads(payloads, types)
    except Exception as error:
        raise ApplicationError("Failed decoding arguments") from error


def _copy(value: RawValue) -> Payload:
    payload = Payload()
    payload.CopyFrom(value.payload)
    return payload
