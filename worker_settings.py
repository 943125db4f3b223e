"""The worker's settings: every variable of the environment that it reads, in one place.

    TEMPORAL_*             where the server is (Temporal's standard environment configuration)
    ACTS_TASK_QUEUE        the queue to serve (acts)
    ACTS_ACTIVITIES        Python modules with Activities and TOOLS, comma separated
    ACTS_TOOLS             folders with *.json Tools, separated like PATH
    ACTS_MCP               a file with MCP servers, whose tools are Tools (docs/mcp.md)
    ACTS_SCRIPTS           folders with the scripts of ``scripted:`` models
    ACTS_DELEGATES         folders with the definitions of delegates (docs/delegates.md)
    ACTS_DELEGATE_HOSTS    hosts that definitions may be fetched from: host or host:port, comma separated
    ACTS_DELEGATE_PRIVATE_HOSTS  host:port where the address need not be public
    ACTS_DATA, ACTS_RESULTS  folders with sets of instances, and for their results (docs/sets.md)
    ACTS_DATA_HOSTS, ACTS_DATA_PRIVATE_HOSTS  hosts that sets may be fetched from, as for delegates
    ANTHROPIC_*, OPENAI_*  keys and addresses of model providers (docs/models.md)
    ACTS_MODELS            a file with model endpoints: ``NAME/MODEL`` (docs/models.md)
    ACTS_STORAGE           where values above 128 KiB are kept: file:<folder> or s3://bucket/prefix (docs/storage.md)
    ACTS_APPROVERS         a file with the public keys of those who alone may decide (docs/approvers.md)
    ACTS_SECRETS           a folder, or env:PREFIX, with the secrets of Tools (docs/secrets.md)
    ACTS_CODEC_KEYS        keys that payloads are encrypted with (docs/encryption.md)
    ACTS_KEEP_PROMPTS      a folder for requests to models and their answers (docs/models.md)
    ACTS_OPENAI_API        the API to use with OpenAI or a compatible server (docs/models.md)
    ACTS_MAX_ACTIVITIES    how many Activities run at once (500)
    ACTS_ACTIVITY_PROCESSES  processes for plain ``def`` Activities (0: threads of the worker)
    ACTS_WORKER_MEMORY     MB that the process may take before it gives up cached workflows (the container's limit)
    ACTS_DEPLOYMENT, ACTS_BUILD_ID  the Worker Deployment Version of this worker; runs end on it (docs/operations.md)
    ACTS_SHUTDOWN_SECONDS  from a stop until the process ends, whatever still runs (20)
    ACTS_WATCHDOG_SECONDS  how long no Python code may run before the process is ended (20; 0: for ever)
    ACTS_LOG, ACTS_LOG_LEVEL, ACTS_METRICS, ACTS_HEALTH, OTEL_*  logs, metrics, health, traces (docs/observability.md)

``acts doctor`` checks them before a worker does.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from typing import Final

from temporalio.common import WorkerDeploymentVersion

from activities.approver_file import ApproverFileError, approvers_from_environment
from activities.kept_prompts import check_folder
from activities.providers.endpoints import EndpointsError
from activities.providers.endpoints import check_environment as check_endpoints
from activities.secret_source import SecretSettingsError, SecretSource, source_from_environment
from acts.language.wire import TASK_QUEUE
from connection.codec import codec_from_environment
from connection.codec_keys import CodecError
from connection.content_store import StorageError
from connection.storage import verify_storage
from delegates.sources import DelegateSources, DelegateSourcesError
from delegates.sources import from_environment as delegates_from_environment
from sets.set_sources import SetSources, SetSourcesError
from sets.set_sources import from_environment as sets_from_environment
from telemetry.telemetry_settings import TelemetryError, TelemetrySettings
from worker_runtime.deployment import DeploymentError, read_version
from worker_runtime.memory_watch import read_container_limit

logger = logging.getLogger(__name__)
_SETTINGS_ERRORS: Final = (
    ApproverFileError, CodecError, DelegateSourcesError, DeploymentError, EndpointsError, SecretSettingsError,
    SetSourcesError, StorageError, TelemetryError,
)  # fmt: skip


class SettingsError(Exception):
    """A setting of the environment has no usable value."""


@dataclass(frozen=True)
class Settings:
    """The worker's settings, read from the environment."""

    task_queue: str = TASK_QUEUE
    max_activities: int = 500
    """Slots for Activities, and how many a workflow may start eagerly in one task: with
    the SDK's 100 and 3, a fan-out of 500 takes twice as long."""
    activity_processes: int = 0
    """Processes for plain ``def`` Activities; 0: they run in threads."""
    memory_bytes: int = 0
    """What the process may take; above four fifths of it, it gives up cached workflows. 0: no limit."""
    shutdown_seconds: float = 20.0
    """From a stop to the end of the process, whatever still runs."""
    watchdog_seconds: float = 20.0
    """C code that holds the interpreter lock for so long is not coming back: the server has given up its workflow
    tasks after 10 s. As long as a stop may take by default, so that a stop during it is no later. 0: no watchdog."""
    deployment: WorkerDeploymentVersion | None = None
    """The Worker Deployment Version that runs are pinned to; None: the worker is unversioned."""
    delegates: DelegateSources = field(default_factory=delegates_from_environment)
    """The folders and hosts that definitions are loaded from."""
    sets: SetSources = field(default_factory=sets_from_environment)
    """The folders and hosts that sets are read from, and the folders for results."""
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    """Logs, metrics and health checks."""
    secrets: SecretSource = field(default_factory=source_from_environment)
    """Where the secrets of Tools are."""

    @property
    def grace_seconds(self) -> float:
        """How long Activities may continue after a stop; the rest is for reporting those that are cut off."""
        return self.shutdown_seconds - min(2.0, self.shutdown_seconds / 4)

    @classmethod
    def from_environment(cls) -> Settings:
        """Raises SettingsError, naming the variable, what it holds and what is allowed."""
        try:
            delegates, sets, deployment = delegates_from_environment(), sets_from_environment(), read_version()
            telemetry = TelemetrySettings.from_environment()
            check_endpoints()
            check_folder()
            away = verify_storage(writes=True)
            codec_from_environment()
            approvers_from_environment()
            secrets = source_from_environment()
        except _SETTINGS_ERRORS as error:
            raise SettingsError(str(error)) from error
        except OSError as error:
            raise SettingsError(f"ACTS_KEEP_PROMPTS names no folder that can be written: {error}") from error
        if away:
            logger.warning("external storage: %s; the worker starts, and waits for it where it is needed", away)
        return cls(
            task_queue=os.environ.get("ACTS_TASK_QUEUE") or TASK_QUEUE,
            max_activities=int(_number("ACTS_MAX_ACTIVITIES", 500, 1, 10_000)),
            activity_processes=int(_number("ACTS_ACTIVITY_PROCESSES", 0, 0, 256)),
            memory_bytes=int(_number("ACTS_WORKER_MEMORY", read_container_limit() >> 20, 0, 1e6)) << 20,
            shutdown_seconds=_number("ACTS_SHUTDOWN_SECONDS", 20.0, 0, 3600),
            watchdog_seconds=_number("ACTS_WATCHDOG_SECONDS", 20.0, 0, 3600),
            deployment=deployment,
            delegates=delegates,
            sets=sets,
            telemetry=telemetry,
            secrets=secrets,
        )


def _number(name: str, default: float, low: float, high: float) -> float:
    text = os.environ.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise SettingsError(f"{name} is {text!r}; it is a number from {low:g} to {high:g}")
    return value
