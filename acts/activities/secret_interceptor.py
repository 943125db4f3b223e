"""Puts secrets into the Call that an Activity gets, and keeps them out of what the Activity gives back.

A Tool of this worker may fix a parameter to ``{"$secret": "name"}`` (``acts/language/tools.py``). Such a
parameter is filled in here, after history and before the code of the Tool. Results, whatever is raised (with its
causes) and heartbeats pass on the way back, and what they hold of the secrets of this Call is masked. So is what the
engine's own Activities give back, of the keys of MCP servers (``env``, ``headers``) and of models.

``ACTS_SECRETS`` says where a worker has its secrets. A secret is read each time that an Activity needs it, so a changed
one counts at once. No error contains a value.

* A folder, as Docker and Kubernetes mount one: the file ``stripe-key`` has the value; a newline at its end is dropped.
* ``env:PREFIX``: the variable PREFIX + the name in capitals, other characters than letters and digits as ``_``:
  ``env:ACTS_SECRET_`` has ``stripe-key`` in ``ACTS_SECRET_STRIPE_KEY``.

Whoever may write a Request, or schedule an Activity, must not choose where a secret goes. So the Tool of a Call must
be, parameter by parameter, the one that this worker has loaded, for this Activity, and the Call must fit it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.worker import ExecuteActivityInput

from acts.activities.engine_activities import miss
from acts.activities.models import endpoints
from acts.language.errors import SettingsError
from acts.language.secret_masks import SecretMasks
from acts.language.strict_json import write_json
from acts.language.tools import META, parameter_schema, put_secrets, read_tool, secret_names, secret_parameters
from acts.language.wire import MODEL
from acts.telemetry.failures import chain_of, text_of

if TYPE_CHECKING:
    from acts.activities.registry import Registry

VARIABLE: Final = "ACTS_SECRETS"
# No separator of paths, and no dot at the beginning: a name never leaves the folder
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# A key with its chain of certificates has some kilobytes
MAX_BYTES: Final = 64 * 1024
_ENV: Final = "env:"
SECRET_REFUSED: Final = "SecretRefused"  # noqa: S105 - the type of an error

# The names of Activities of the engine and of MCP servers begin so
_OWN: Final = ("acts.", "mcp.")
_NOT_JSON: Final = "no JSON, left out"

_masks: ContextVar[SecretMasks | None] = ContextVar("secret_masks", default=None)


class SecretMissing(Exception):
    """A secret cannot be read here: names it and the setting, not its value."""


def check_setting(setting: str) -> None:
    """Raise SettingsError for an ``ACTS_SECRETS`` that names nothing from which secrets can be read."""
    if setting.startswith(_ENV):
        if not re.fullmatch(r"[A-Za-z_]\w*", setting.removeprefix(_ENV)):
            raise SettingsError(f"{VARIABLE} is {setting!r}; a prefix of variables is like env:ACTS_SECRET_")
    elif setting and not Path(setting).is_dir():
        raise SettingsError(f"{VARIABLE} names {setting}, which is not a folder; or write env:PREFIX")


def read_secret(setting: str, name: str) -> str:
    """The value of a secret from where ``ACTS_SECRETS`` says. Raises SecretMissing: it is not there, or is no text."""
    if not NAME.fullmatch(name):
        text = "a name is 1 to 128 letters, digits, and . _ -, beginning with a letter or digit"
        raise SecretMissing(f"{name[:80]!r} cannot be the name of a secret: {text}")
    value, reason = "", f"{VARIABLE} is not set"
    if setting.startswith(_ENV):
        variable = setting.removeprefix(_ENV) + re.sub(r"[^A-Za-z0-9]", "_", name).upper()
        value, reason = os.environ.get(variable, ""), f"{variable} is not set"
    elif setting:
        path = Path(setting) / name
        try:
            with path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
            if len(data) > MAX_BYTES:
                reason = f"{path}: it has more than {MAX_BYTES:,} bytes"
            else:
                value, reason = data.decode().removesuffix("\n").removesuffix("\r"), f"{path} is empty"
        except OSError as error:
            reason = f"{path}: {error.strerror}"
        except UnicodeDecodeError:
            reason = f"{path}: it is not text in UTF-8"
    if not value:
        raise SecretMissing(f'the secret "{name}" is missing: {reason}')
    return value


def check_tools(tools: Mapping[str, Any], setting: str) -> list[str]:
    """What is missing for the Tools of a worker: a line for each secret. Raises SettingsError: a Tool names a
    secret in a place where none is read.
    """
    missing: dict[str, None] = {}
    for tool, schema in tools.items():
        fixed = secret_parameters(schema)
        read = [name for value in fixed.values() for name in secret_names(value)]
        if len(list(secret_names(schema))) != len(read):
            text = 'a secret is a part of the const of a parameter: "apiKey": {"const": {"$secret": "name"}}'
            raise SettingsError(f'the tool "{tool}" names a secret in another place; {text}')
        for name in read:
            try:
                read_secret(setting, name)
            except SecretMissing as error:
                missing[f'tool "{tool}": {error}'] = None
    return list(missing)


# -- calls --------------------------------------------------------------------------


class SecretInterceptor:
    """``announce`` is given the secrets of each Call, before it begins: what logs can mask them then."""

    def __init__(self, registry: Registry, setting: str, announce: Callable[[Iterable[str]], None]) -> None:
        self._registry, self._setting, self._announce = registry, setting, announce
        self._names = frozenset(registry.names)

    async def __call__(
        self, call: ExecuteActivityInput, proceed: Callable[[ExecuteActivityInput], Awaitable[Any]]
    ) -> Any:
        """Fill in the secrets of a Call, run its Activity, and mask what comes back."""
        args = list(call.args)
        fixed = secret_parameters(args[1]) if len(args) > 1 else {}
        if fixed:
            call.args, masks = await self.fill(args, fixed)
        elif keys := await asyncio.to_thread(self._keys, activity.info().activity_type):
            self._announce(keys)
            masks = SecretMasks(keys)
        else:
            return await proceed(call)
        token = _masks.set(masks)
        try:
            return masked_result(await proceed(call), masks)
        except BaseException as error:
            failure = masked_failure(error, masks)
            if failure is error:
                raise
        finally:
            _masks.reset(token)
        raise failure  # here, so that the failure as it was is not its context

    def _keys(self, kind: str) -> list[str]:
        """What an Activity of the engine itself knows and must not tell."""
        keys = [key for server in self._registry.servers.configs.values() for key in server.secrets]
        return (keys if kind.startswith(_OWN) else []) + (endpoints.read_keys() if kind == MODEL else [])

    async def fill(self, args: list[Any], fixed: Mapping[str, Any]) -> tuple[list[Any], SecretMasks]:
        """The arguments of an Activity with the secrets in its Call, and their masks. Raises ApplicationError: a secret
        is missing, or this Call must not have it.
        """
        call, schema, kind = args[0], args[1], activity.info().activity_type
        name = call.get("_tool") if isinstance(call, dict) else None
        own = self._registry.tools.get(name) if isinstance(name, str) else None
        if own is None:
            hint = "load it with ACTS_ACTIVITIES or ACTS_TOOLS, and use it by its name"
            text = f'the tool "{name}" names a secret, and this worker has not loaded it: {hint}'
            raise ApplicationError(text, type=SECRET_REFUSED, non_retryable=True)
        tool, _ = read_tool(str(name), own, served=name in self._names)
        if tool is None or tool.activity != kind or _binding(own) != _binding(schema):
            raise _miss(f'the tool "{name}", which names a secret, is not the one that this worker has loaded')
        if tool.parameters.defects({k: v for k, v in call.items() if k not in META and k != "_id"}):
            text = f'the Call does not fit the tool "{name}", which names a secret'
            raise ApplicationError(text, type=SECRET_REFUSED, non_retryable=True)
        secrets: dict[str, str] = {}
        for secret in dict.fromkeys(n for value in fixed.values() for n in secret_names(value)):
            try:
                secrets[secret] = await asyncio.to_thread(read_secret, self._setting, secret)
            except SecretMissing as error:
                raise _miss(f'tool "{name}": {error}') from None
        self._announce(secrets.values())
        call = {**call, **{key: put_secrets(value, secrets) for key, value in fixed.items()}}
        return [call, *args[1:]], SecretMasks(secrets.values())


def _binding(schema: Mapping[str, Any]) -> str:
    """What decides where a secret goes: the parameters, and which of them are secrets."""
    return json.dumps([parameter_schema(schema), secret_parameters(schema)], sort_keys=True)


def _miss(text: str) -> ApplicationError:
    return miss(f"{text} ({VARIABLE} of the workers on the queue {activity.info().task_queue!r})")


def mask_details(details: Sequence[Any]) -> Sequence[Any]:
    """The details of a heartbeat without the secrets of the Call that runs."""
    masks = _masks.get()
    return details if masks is None else [masked_result(detail, masks) for detail in details]


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


def masked_failure(error: BaseException, masks: SecretMasks) -> BaseException:
    """What was raised, or, where a secret is in it or in one of its causes, a copy with masks."""
    copy, texts = None, traceback.format_exception(error)
    for part in reversed(chain_of(error)[0]):
        own = part if isinstance(part, ApplicationError) else ApplicationError(text_of(part), type=type(part).__name__)
        texts += [own.message, own.type or "", type(part).__name__]
        details = [_as_json(detail, texts) for detail in own.details]
        cause, copy = (
            copy,
            ApplicationError(
                masks.mask_text(own.message),
                *masks.mask_value(details),
                type=masks.mask_text(own.type or "") or None,
                non_retryable=own.non_retryable,
                next_retry_delay=own.next_retry_delay,
                category=own.category,
            ),
        )
        copy.__cause__ = cause
        place = "".join(traceback.format_tb(part.__traceback__))
        copy.__traceback__ = None if masks.is_in_text(place) else part.__traceback__
    if copy is None or not (_NOT_JSON in texts or masks.is_in_text("\n".join(texts))):
        return error
    return asyncio.CancelledError() if isinstance(error, asyncio.CancelledError) else copy


def _as_json(detail: Any, texts: list[str]) -> Any:
    """A detail as JSON, whose text joins ``texts``; one that is none is left out: who knows how it will be written."""
    try:
        text = json.dumps(detail, default=str, ensure_ascii=False)
        value = json.loads(text)
    except Exception:  # noqa: BLE001 - circular, too deep, keys that are no text, a __str__ that raises
        texts.append(_NOT_JSON)
        return f"{_NOT_JSON}: {type(detail).__name__}"
    texts.append(text)
    return value
