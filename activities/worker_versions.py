"""Workers of different versions on one task queue, as in every rolling deploy: who polls, and what each has.

A worker's *version* is a digest of its Tools and of the names of its Activities. Its identity begins with it, and the
server lists the identities of all that poll a queue: so a worker can tell that others may know more. Where Temporal's
worker versioning is on, those of another deployment version do not count: no task of this one's runs reaches them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity
from temporalio.api.enums.v1 import WorkerVersioningMode
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, FailureError
from temporalio.service import RPCError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.task_queues import read_pollers
from acts.language.errors import format_choices
from acts.language.tools import fixes_answer, read_tool
from acts.language.wire import LOOK_UP_EVERYWHERE, NOT_SERVED
from telemetry.bounded_failures import text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from temporalio.api.taskqueue.v1 import PollerInfo
    from temporalio.common import WorkerDeploymentVersion

    from activities.registry import Registry

_IDENTITY: Final = re.compile(r"^acts/([0-9a-f]{8}) ")
# Many runs that start together ask the server once
_CACHE_SECONDS: Final = 1.0
# A poll lasts a minute at most. A worker that has not polled for longer is gone, though the server lists it for five
_POLL_SECONDS: Final = 90.0
# How often a look-up goes to a worker, in 11 s. Of two equally many versions, the other one gets nearly half of the
# tries after the first, which goes to the worker that asks: one is missed in a million cases. Where a Tool is missing,
# a version that few workers have gets more chances, in a minute
TRIES: Final = 24
TRIES_FOR_TOOLS: Final = 120


def registry_version(registry: Registry) -> str:
    """Eight hex digits that differ where Tools, or the names of Activities, differ."""
    content = json.dumps([registry.tools, sorted(registry.names)], sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()[:8]


def deployment_key(version: WorkerDeploymentVersion | None) -> tuple[str, str]:
    """The name and the build id of a deployment version; two empty strings for an unversioned worker."""
    return ("", "") if version is None else (version.deployment_name, version.build_id)


def poller_deployment(poller: PollerInfo) -> tuple[str, str]:
    """The deployment version of a worker that polls, as ``deployment_key`` has it."""
    options = poller.deployment_options
    if options.worker_versioning_mode != WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED:
        return "", ""
    return options.deployment_name, options.build_id


class WorkerVersions:
    """What one worker knows of its version and of the others. ``identity``: as the server and the Web UI show it."""

    def __init__(self, registry: Registry, deployment: WorkerDeploymentVersion | None = None) -> None:
        self.version = registry_version(registry)
        self._deployment = deployment_key(deployment)
        self.identity = f"acts/{self.version} {os.getpid()}@{socket.gethostname()}"
        self.tools, self._names = registry.tools, frozenset(registry.names)
        self._polling: tuple[float, frozenset[str]] = (float("-inf"), frozenset())

    async def polling(self) -> frozenset[str]:
        """The versions of the workers that poll this activity's queue; empty where the server does not say."""
        if time.monotonic() - self._polling[0] > _CACHE_SECONDS:
            try:
                pollers = await read_pollers(activity.client(), activity.info().task_queue)
            except RPCError:
                return frozenset()
            latest = time.time() - _POLL_SECONDS
            alive = (
                _IDENTITY.match(p.identity) for p in pollers
                if p.last_access_time.ToSeconds() > latest and poller_deployment(p) == self._deployment
            )  # fmt: skip
            self._polling = time.monotonic(), frozenset(match[1] for match in alive if match)
        return self._polling[1]

    async def others_may_know(self) -> bool:
        """True when workers of another version poll this queue."""
        return not await self.polling() <= {self.version}

    def look_up_everywhere(self) -> Callable[..., Any]:
        """The activity ``acts.lookup``: what the versions of the workers on this queue have together.

        The request is that of ``acts.registry``, the answer ``{tools, served, workers: {version: identity}}``. A worker
        adds what it has and fails, so that another takes the next attempt, until nothing is missing, or each
        version that polls has answered, or ``TRIES`` are over. The answer so far travels in the heartbeat.
        """

        @activity.defn(name=LOOK_UP_EVERYWHERE)
        async def look_up(request: dict[str, Any]) -> dict[str, Any]:
            info = activity.info()
            answer = info.heartbeat_details[0] if info.heartbeat_details else {"tools": {}, "served": [], "workers": {}}
            tools: dict[str, Any] = {n: self.tools[n] for n in request["tools"] if n in self.tools} | answer["tools"]
            served = {*answer["served"], *(n for n in request["activities"] if n in self._names)}
            answer |= {"tools": tools, "served": [n for n in request["activities"] if n in served]}
            answer["workers"][self.version] = self.identity
            unasked = await self.polling() - answer["workers"].keys()
            has_tools = len(tools) == len(request["tools"])
            is_complete = has_tools and all(n in served or fixes_answer(tools.get(n)) for n in request["activities"])
            if is_complete or not unasked or info.attempt >= (TRIES if has_tools else TRIES_FOR_TOOLS):
                return answer
            activity.heartbeat(answer)
            text = f"a worker of version {format_choices(unasked)} may know more"
            raise ApplicationError(text, type="AskAnother", category=ApplicationErrorCategory.BENIGN)

        return look_up

    async def refusal(self) -> ApplicationError:
        """The failure of an Activity that this worker does not have: what the run needs to know to try another."""
        info = activity.info()
        miss = {"attempt": info.attempt, "version": self.version, "polling": sorted(await self.polling())}
        text = f'{self.identity} has no activity "{info.activity_type}"; it has {format_choices(sorted(self._names))}'
        return ApplicationError(text, {"miss": miss}, type=NOT_SERVED, non_retryable=True)

    def changed_tool(self, args: Sequence[Any], activity_type: str) -> str | None:
        """The name of the Tool of a Call, if this worker has another definition of it than the run that made the Call.

        ``args`` are those of its Activity. A Tool of the same name with another Activity is not the same Tool.
        """
        if len(args) < 2 or not isinstance(args[0], dict):  # noqa: PLR2004 - the Call, and its Tool
            return None
        name = args[0].get("_tool")
        schema = self.tools.get(name) if isinstance(name, str) else None
        if name is None or schema is None or schema == args[1]:
            return None
        own, _ = read_tool(name, schema, served=name in self._names)
        return name if own is not None and own.activity == activity_type else None


@activity.defn(dynamic=True)
async def missing_activity(_args: Sequence[RawValue]) -> None:
    """The activity of every name that a worker does not have: ``VersionInterceptor`` refuses it before it begins."""


class VersionInterceptor(Interceptor):
    """Refuses the Activities that this worker does not have, and says so where a run has an earlier Tool."""

    def __init__(self, versions: WorkerVersions) -> None:
        self._versions = versions

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Look at each Activity before and after it."""
        return _Inbound(next, self._versions)


class _Inbound(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, versions: WorkerVersions) -> None:  # noqa: A002 - the SDK's name
        super().__init__(next)
        self._versions = versions

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        if input.fn is missing_activity:
            raise await self._versions.refusal()
        try:
            return await super().execute_activity(input)
        except Exception as error:
            is_foreign = isinstance(error, FailureError) and not isinstance(error, ApplicationError)
            name = None if is_foreign else self._versions.changed_tool(input.args, activity.info().activity_type)
            if name is None:
                raise
            raise with_hint(error, name) from error


def with_hint(error: Exception, tool: str) -> ApplicationError:
    """The failure, as the server would have recorded it, with a word about the Tool."""
    hint = (
        f'the worker has another definition of the tool "{tool}" now than this run, which looked it up when it began '
        "or has it in its Request: if that is the cause, let the code take both, or start a new run"
    )
    if not isinstance(error, ApplicationError):
        return ApplicationError(f"{text_of(error)}; {hint}", type=type(error).__name__)
    return ApplicationError(
        f"{error.message}; {hint}", *error.details, type=error.type, non_retryable=error.non_retryable,
        next_retry_delay=error.next_retry_delay, category=error.category,
    )  # fmt: skip
