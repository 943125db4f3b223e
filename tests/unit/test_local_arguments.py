"""The arguments of local activities: passed on in the process, decoded for each attempt, and refused without a run."""

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from workflows.runtime.local_arguments import KeptArguments, LocalArgumentsInterceptor, decode_arguments
from workflows.runtime.payloads import encode


@dataclasses.dataclass
class Order:
    item: str


@activity.defn
async def untyped(call: Any, tool: Any, context: Any) -> None:
    """A Tool that may be called with anything."""


@activity.defn
async def typed(call: Order, tool: dict[str, Any], context: list[Any]) -> None:
    """A Tool that wants its own type."""


@activity.defn
async def shorter(call: Order) -> None:
    """A Tool whose types do not fit the number of arguments."""


@activity.defn
async def raw(call: RawValue, tool: RawValue, context: RawValue) -> None:
    """A Tool that reads the payloads itself."""


@activity.defn(dynamic=True)
async def any_name(args: Sequence[RawValue]) -> None:
    """The activity of all other names."""


VALUES = [encode({"item": "tea"}), encode({"type": "object"}), encode([])]


class Last(ActivityInboundInterceptor):
    """The end of the chain: the arguments that arrive."""

    def __init__(self) -> None:
        self.args: list[Any] = []

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        self.args.append(input.args)


def execute(
    interceptor: LocalArgumentsInterceptor,
    function: Callable[..., Any] = untyped,
    args: tuple[Any, ...] = (),
    **info: Any,
) -> Any:
    """The arguments that reach an activity."""
    last = Last()
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(environment.info, workflow_run_id="run", activity_id="1:tea", **info)
    input_ = ExecuteActivityInput(fn=function, args=list(args), executor=None, headers={})
    asyncio.run(environment.run(interceptor.intercept_activity(last).execute_activity, input_))
    return last.args[0]


@pytest.mark.parametrize(
    ("function", "first"),
    [(untyped, {"item": "tea"}), (typed, Order("tea")), (shorter, {"item": "tea"})],
)
def test_arguments_are_decoded_as_the_sdk_does(function: Callable[..., Any], first: Any) -> None:
    args = ActivityEnvironment().run(decode_arguments, function, VALUES)
    assert args == [first, {"type": "object"}, []]


def test_the_activity_of_all_names_takes_them_undecoded() -> None:
    assert ActivityEnvironment().run(decode_arguments, any_name, VALUES) == [VALUES]


def test_what_is_not_decoded_is_a_copy_since_the_run_uses_the_schema_for_other_calls_too() -> None:
    for args in (
        ActivityEnvironment().run(decode_arguments, any_name, VALUES)[0],
        ActivityEnvironment().run(decode_arguments, raw, VALUES),
    ):
        assert args == VALUES
        args[1].payload.data = b"changed by a Tool"
        assert args != VALUES


def test_arguments_that_do_not_fit_the_types_fail_the_activity() -> None:
    with pytest.raises(ApplicationError, match="Failed decoding arguments"):
        ActivityEnvironment().run(decode_arguments, typed, [encode(1), *VALUES[1:]])


def test_each_attempt_has_arguments_of_its_own() -> None:
    interceptor, entry = LocalArgumentsInterceptor([]), KeptArguments(VALUES)
    interceptor.arguments["run", "1:tea"] = entry
    first, second = (execute(interceptor, is_local=True) for _ in range(2))
    assert first == second == [{"item": "tea"}, {"type": "object"}, []]
    assert first[0] is not second[0]


def test_without_the_run_that_started_it_a_local_activity_does_not_run() -> None:
    interceptor, entry = LocalArgumentsInterceptor([]), KeptArguments(VALUES)
    interceptor.arguments["run", "1:tea"] = entry
    del entry
    for function in (untyped, any_name):
        with pytest.raises(ApplicationError, match="left the cache"):
            execute(interceptor, function, ([],) if function is any_name else (), is_local=True)


def test_other_activities_keep_what_they_were_called_with() -> None:
    assert execute(LocalArgumentsInterceptor([]), is_local=False) == []
    assert execute(LocalArgumentsInterceptor(["acts.own"]), is_local=True, activity_type="acts.own") == []
    assert execute(LocalArgumentsInterceptor([]), args=(1,), is_local=True) == [1]
