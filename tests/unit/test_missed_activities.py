"""Which failures say that a worker does not have an Activity, and what a failure says of a Tool that has changed."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.exceptions import ActivityError, ApplicationError, RetryState

from activities.registry import Registry
from activities.worker_versions import WorkerVersions, with_hint
from acts.language.config import Options
from acts.language.wire import NOT_SERVED
from connection.codec import UnknownKey
from workflows.runtime.missed_activities import Miss, miss_of

OPTIONS = Options.model_validate({"retry": {"maxAttempts": 4}})
DETAIL = {"miss": {"attempt": 2, "version": "0a", "polling": ["0a", "0b"]}}


def activity_error(cause: BaseException | None) -> ActivityError:
    error = ActivityError(
        "Activity task failed", scheduled_event_id=1, started_event_id=2, identity="", activity_type="x",
        activity_id="1:x", retry_state=RetryState.NON_RETRYABLE_FAILURE,
    )  # fmt: skip
    error.__cause__ = cause
    return error


def unregistered(text: str) -> BaseException:
    return activity_error(ApplicationError(text, type="NotFoundError"))


def undecryptable() -> BaseException:
    """What the SDK makes of arguments that the codec cannot decrypt."""
    failed = ApplicationError("Failed decoding arguments")
    failed.__cause__ = ApplicationError("encrypted with the key 'k2'", type=UnknownKey.__name__)
    return activity_error(failed)


FAILURES: list[tuple[BaseException, Miss | None]] = [
    (activity_error(ApplicationError("no", DETAIL, type=NOT_SERVED)), Miss("no", 2, "0a", ("0a", "0b"))),
    (unregistered("Activity function x for workflow y is not registered on this worker, available"), Miss("", 4)),
    (unregistered("unable to find activityType=x. Supported types: [y]"), Miss("", 4)),
    (unregistered('Activity Type "x" is not registered with a worker. Known types are: y'), Miss("", 4)),
    (activity_error(ApplicationError("a tool's own error", type=NOT_SERVED)), None),
    (activity_error(ApplicationError("the card is not registered", type="declined")), None),
    (activity_error(None), None),
    (ApplicationError("no", DETAIL, type=NOT_SERVED), Miss("no", 2, "0a", ("0a", "0b"))),  # of a local activity
    (undecryptable(), Miss("", 4, "", ("workers with the key",))),
    (ValueError("x is not registered on this worker"), None),
]


@pytest.mark.parametrize(("error", "miss"), FAILURES)
def test_a_miss_is_told_from_a_failure_of_the_tool(error: BaseException, miss: Miss | None) -> None:
    found = miss_of(error, OPTIONS)
    if miss is None or found is None:
        assert found is miss
        return
    assert (found.attempt, found.version, found.polling) == (miss.attempt, miss.version, miss.polling)
    assert found.reason


def schema(activity: Any, **parameters: Any) -> dict[str, Any]:
    meta = {} if activity is None else {"_activity": {"const": activity}}
    return {"type": "object", "properties": {**meta, **parameters}}


VERSIONS = WorkerVersions(Registry({"pay": schema("house.pay", cents=True)}, ()))
CALL = {"_tool": "pay", "amount": 1}
TOOLS: list[tuple[list[Any], str, str | None]] = [
    ([CALL, schema("house.pay", amount=True), []], "house.pay", "pay"),
    ([CALL, schema("house.pay", cents=True), []], "house.pay", None),
    ([CALL, schema("other.pay", amount=True), []], "other.pay", None),  # a Tool of the Request, with the same name
    ([{"_tool": "other"}, schema("house.pay"), []], "house.pay", None),
    ([{"_tool": ["pay"]}, schema("house.pay"), []], "house.pay", None),
    ([], "house.pay", None),
    (["pay", 1, 2], "house.pay", None),
]


@pytest.mark.parametrize(("args", "activity_type", "name"), TOOLS)
def test_a_tool_has_changed_if_the_worker_has_another_definition_with_the_same_activity(
    args: list[Any], activity_type: str, name: str | None
) -> None:
    assert VERSIONS.changed_tool(args, activity_type) == name


def test_a_hint_leaves_everything_else_of_a_failure_as_it_was() -> None:
    error = ApplicationError("declined", {"code": 7}, type="card", non_retryable=True)
    hinted = with_hint(error, "pay")
    assert hinted.message.startswith("declined; ")
    assert '"pay"' in hinted.message
    assert (hinted.type, list(hinted.details), hinted.non_retryable) == ("card", [{"code": 7}], True)
    assert with_hint(KeyError("amount"), "pay").type == "KeyError"
