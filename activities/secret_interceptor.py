"""Puts secrets into the Call that an Activity gets, and keeps them out of what the Activity gives back.

A Tool of this worker may fix a parameter to ``{"$secret": "name"}`` (``acts/language/secret_references.py``). Such a
parameter is filled in here, after history and before the code of the Tool. Results, failures (with their causes) and
heartbeats pass on the way back, and what they hold of the secrets of this Call is masked.

Whoever may write a Request, or schedule an Activity, must not choose where a secret goes. So the Tool of a Call must
be, parameter by parameter, the one that this worker has loaded, for this Activity, and the Call must fit it.
"""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ActivityOutboundInterceptor, ExecuteActivityInput, Interceptor

from activities.secret_source import VARIABLE, SecretMissing, SecretSource
from acts.language.secret_masks import SecretMasks
from acts.language.secret_references import put_secrets, secret_names, secret_parameters
from acts.language.strict_json import write_json
from acts.language.tools import META, parameter_schema, read_tool
from acts.language.wire import NOT_SERVED

if TYPE_CHECKING:
    from activities.registry import Registry

SECRET_REFUSED: Final = "SecretRefused"  # noqa: S105 - the type of an error
# In a miss, as a version that polls: workers that have the secret may come, so a Call waits as in a rolling deploy
_OTHERS: Final = "workers with the secret"
# Causes of a failure that are masked; deeper ones are left out
_MAX_CAUSES: Final = 10

_masks: ContextVar[SecretMasks | None] = ContextVar("secret_masks", default=None)


class SecretInterceptor(Interceptor):
    """``announce`` is given the secrets of each Call, before it begins: what logs can mask them then."""

    def __init__(self, registry: Registry, source: SecretSource, announce: Callable[[Iterable[str]], None]) -> None:
        self._registry, self._source, self._announce = registry, source, announce
        self._names = frozenset(registry.names)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Fill in and mask."""
        return _Inbound(next, self)

    async def fill(self, args: list[Any], fixed: Mapping[str, Any]) -> tuple[list[Any], SecretMasks]:
        """The arguments of an Activity with the secrets in its Call, and their masks.

        Raises:
            ApplicationError: a secret is missing, or this Call must not have it.
        """
        self._check(args)
        secrets: dict[str, str] = {}
        for name in dict.fromkeys(n for value in fixed.values() for n in secret_names(value)):
            try:
                secrets[name] = await asyncio.to_thread(self._source.read, name)
            except SecretMissing as error:
                raise _miss(f'tool "{args[0].get("_tool")}": {error}') from None
        self._announce(secrets.values())
        call = {**args[0], **{key: put_secrets(value, secrets) for key, value in fixed.items()}}
        return [call, *args[1:]], SecretMasks(secrets.values())

    def _check(self, args: list[Any]) -> None:
        call, schema, kind = args[0], args[1], activity.info().activity_type
        if not isinstance(call, dict):
            text = f'the Activity "{kind}" takes its Call as {type(call).__name__}; a Call with secrets is a dict'
            raise ApplicationError(text, type=SECRET_REFUSED, non_retryable=True)
        name = call.get("_tool")
        own = self._registry.tools.get(name) if isinstance(name, str) else None
        if own is None:
            text = f'the tool "{name}" names a secret, and this worker has not loaded it'
            hint = "load it with ACTS_ACTIVITIES or ACTS_TOOLS, and use it by its name"
            raise ApplicationError(f"{text}: {hint}", type=SECRET_REFUSED, non_retryable=True)
        tool, _ = read_tool(str(name), own, served=name in self._names)
        if tool is None or tool.activity != kind or _binding(own) != _binding(schema):
            raise _miss(f'the tool "{name}", which names a secret, is not the one that this worker has loaded')
        if tool.parameters.defects({k: v for k, v in call.items() if k not in META and k != "_id"}):
            text = f'the Call does not fit the tool "{name}", which names a secret'
            raise ApplicationError(text, type=SECRET_REFUSED, non_retryable=True)


def _binding(schema: Mapping[str, Any]) -> str:
    """What decides where a secret goes: the parameters, and which of them are secrets."""
    return json.dumps([parameter_schema(schema), secret_parameters(schema)], sort_keys=True)


def _miss(text: str) -> ApplicationError:
    """No attempt of the Tool: the run waits for a worker that can (``workflows/runtime/missed_activities.py``)."""
    info = activity.info()
    hint = f"{VARIABLE} of the workers on the queue {info.task_queue!r}"
    miss = {"attempt": info.attempt, "version": "", "polling": [_OTHERS]}
    return ApplicationError(f"{text} ({hint})", {"miss": miss}, type=NOT_SERVED, non_retryable=True)


class _Inbound(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, secrets: SecretInterceptor) -> None:  # noqa: A002 - the SDK's name
        super().__init__(next)
        self._secrets = secrets

    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        """Heartbeats are masked, too."""
        super().init(_MaskedHeartbeats(outbound))

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        args = list(input.args)
        fixed = secret_parameters(args[1]) if len(args) > 1 else {}
        if not fixed:
            return await super().execute_activity(input)
        input.args, masks = await self._secrets.fill(args, fixed)
        token = _masks.set(masks)
        try:
            return masked_result(await super().execute_activity(input), masks)
        except Exception as error:
            failure = masked_failure(error, masks)
            if failure is error:
                raise
        finally:
            _masks.reset(token)
        raise failure  # here, so that the failure as it was is not its context


class _MaskedHeartbeats(ActivityOutboundInterceptor):
    def heartbeat(self, *details: Any) -> None:
        masks = _masks.get()
        super().heartbeat(*(details if masks is None else [masked_result(detail, masks) for detail in details]))


def masked_result(result: Any, masks: SecretMasks) -> Any:
    """The result; where a secret is in it, a payload with masks in its place."""
    if result is None:
        return None
    payload = result.payload if isinstance(result, RawValue) else activity.payload_converter().to_payload(result)
    if not masks.is_in_bytes(payload.data):
        return RawValue(payload)
    if payload.metadata.get("encoding", b"").startswith(b"json/"):
        data = write_json(masks.mask_value(json.loads(payload.data)))
    else:
        data = masks.mask_bytes(payload.data)
    return RawValue(Payload(metadata=payload.metadata, data=data))


def masked_failure(error: Exception, masks: SecretMasks) -> Exception:
    """The failure itself, or, where a secret is in it or in one of its causes, a copy with masks."""
    text = "".join(traceback.format_exception(error))
    if not masks.is_in_text(text) and not _has_details(error, masks):
        return error
    return _masked_copy(error, masks, _MAX_CAUSES)


def _cause(error: BaseException) -> BaseException | None:
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _has_details(error: BaseException | None, masks: SecretMasks) -> bool:
    for _ in range(_MAX_CAUSES):
        if error is None:
            return False
        if isinstance(error, ApplicationError) and masks.is_in_text(f"{error.type} {_plain(error.details)}"):
            return True
        error = _cause(error)
    return False


def _plain(details: Any) -> Any:
    """Details as JSON; what is none as text."""
    return json.loads(json.dumps(details, default=str, ensure_ascii=False))


def _masked_copy(error: BaseException, masks: SecretMasks, causes: int) -> ApplicationError:
    if isinstance(error, ApplicationError):
        copy = ApplicationError(
            masks.mask_text(error.message), *masks.mask_value(_plain(error.details)),
            type=None if error.type is None else masks.mask_text(error.type), non_retryable=error.non_retryable,
            next_retry_delay=error.next_retry_delay, category=error.category,
        )  # fmt: skip
    else:
        copy = ApplicationError(masks.mask_text(str(error)), type=type(error).__name__)
    cause = _cause(error)
    copy.__cause__ = None if cause is None or not causes else _masked_copy(cause, masks, causes - 1)
    copy.__suppress_context__ = True
    return copy.with_traceback(error.__traceback__)
