"""The worker's settings: every variable of the environment that it reads, in one model.

Others read Temporal's own ``TEMPORAL_*`` (where the server is), the providers' ``ANTHROPIC_*`` and ``OPENAI_*``, and
OpenTelemetry's ``OTEL_*``. What clients and commands read as well (keys, storage, Tools, approvers, models, scripts) is
read where it is used; here it has its description, and is checked. ``acts doctor`` checks all before a worker does.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import WorkerDeploymentConfig

from acts.activities.models.endpoints import check_environment as check_endpoints
from acts.activities.run_setup import approvers_from_environment, check_day_costs
from acts.activities.secret_interceptor import check_setting
from acts.delegates import sources
from acts.language.config import MAX_PARALLEL
from acts.language.errors import SettingsError, format_choices
from acts.language.variables import PREFIX, find_mistake
from acts.language.wire import TASK_QUEUE
from acts.payloads.codec import CodecError, codec_from_environment
from acts.payloads.converter import verify_storage
from acts.payloads.stores import StorageError
from acts.sets import set_files
from acts.worker.watch import read_container_limit

logger = logging.getLogger(__name__)
_MAX_PORT: Final = 65_535
MAX_QUEUE: Final = 500  # the server takes 1,000 characters; the queue of a limited Activity has its name behind it


def _resolve(text: str) -> str:
    """The host as its address: the SDK takes no names. "" stays."""
    if not text:
        return ""
    match = re.fullmatch(r"(.+):([0-9]{1,5})", text)
    if match is None or int(match[2]) > _MAX_PORT:
        raise ValueError("it is host:port, such as 127.0.0.1:9464")
    try:
        addresses = socket.getaddrinfo(match[1].strip("[]"), int(match[2]), type=socket.SOCK_STREAM)
    except OSError as error:
        raise ValueError(f"its host has no address: {error.strerror or error}") from None
    host = str(addresses[0][4][0])
    return f"[{host}]:{match[2]}" if ":" in host else f"{host}:{match[2]}"


def _read_sources(prefix: str, folders: tuple[Path, ...], hosts: str, private: str) -> sources.DelegateSources:
    private_hosts = sources.read_hosts(f"{prefix}_PRIVATE_HOSTS", private, needs_port=True)
    return sources.DelegateSources(folders, sources.read_hosts(f"{prefix}_HOSTS", hosts), private_hosts)


def _check_limits(text: str) -> str:
    for part in filter(None, map(str.strip, text.split(","))):
        if not re.fullmatch(r"[^=]+=[0-9]{1,5}", part):
            raise ValueError("it is NAME=N, separated by commas, such as issue_refund=5")
    return text


_Seconds = Annotated[float, Field(ge=0, le=3600)]
_Address = Annotated[str, AfterValidator(_resolve)]
_LOWER: Final = BeforeValidator(lambda value: str(value).lower())
_Form = Annotated[Literal["text", "json"], _LOWER]
_Level = Annotated[Literal["info", "error", "debug", "warning"], _LOWER]


class LogSettings(BaseSettings):
    """What is needed to say that another setting is wrong. A field ``x`` is ``ACTS_X``; an empty one is not set."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="ignore")

    log: _Form = Field("text", description="``text`` or ``json`` (docs/observability.md)")
    log_level: _Level = Field("info", description="debug, info, warning or error")

    @classmethod
    def from_environment(cls) -> Self:
        """Raises SettingsError, naming the variable, what it holds and what is allowed, in one line."""
        try:
            return cls()
        except ValidationError as error:
            first = error.errors()[0]
            text = first["msg"].removeprefix("Value error, ")
            if not first["loc"]:
                raise SettingsError(text) from None
            name = str(first["loc"][0]).upper().removeprefix(PREFIX)
            raise SettingsError(f"{PREFIX}{name} is {first['input']!r}; {text[0].lower()}{text[1:]}") from None


class Settings(LogSettings):
    task_queue: str = Field(TASK_QUEUE, max_length=MAX_QUEUE, description="the queue to serve (acts)")
    activities: str = Field("", description="Python modules with Tools (docs/tools.md), comma separated")
    tools: str = Field("", description="folders with *.json Tools, separated like PATH")
    shipped_tools: str | None = Field(None, description="which Tools that ship it has (docs/tools.md): all, if not set")
    plans: str = Field("", description="folders with plans that are started by name (docs/plans.md)")
    mcp: str = Field("", description="a file with MCP servers, whose tools are Tools (docs/tools.md)")
    scripts: str = Field("", description="folders with the scripts of ``scripted:`` models")
    delegates: str = Field("", description="folders with the definitions of delegates (docs/delegates.md)")
    delegate_hosts: str = Field("", description="hosts to fetch definitions from: host or host:port, comma separated")
    delegate_private_hosts: str = Field("", description="host:port where the address need not be public")
    data: str = Field("", description="folders with sets of instances (docs/delegates.md)")
    results: str = Field("", description="folders for the results of sets")
    data_hosts: str = Field("", description="hosts that sets may be fetched from, as for delegates")
    data_private_hosts: str = Field("", description="host:port where the address need not be public")
    http_hosts: str = Field("", description="hosts of the tool http, and of files that models are given")
    http_private_hosts: str = Field("", description="host:port where the address need not be public")
    models: str = Field("", description="a file with model endpoints: ``NAME/MODEL`` (docs/agents.md)")
    storage: str = Field("", description="for large values: file:<folder> or s3://bucket/prefix (docs/sizing.md)")
    approvers: str = Field("", description="a file with the keys of those who alone may decide (docs/security.md)")
    secrets: str = Field("", description="a folder, or env:PREFIX, with the secrets of Tools (docs/security.md)")
    page: Literal["on", "off"] = Field("on", description="the page of a run in the Web UI (docs/people.md)")
    codec_keys: str = Field("", description="keys that payloads are encrypted with (docs/security.md)")
    openai_api: Literal["", "chat", "responses"] = Field("", description="the API of OpenAI's models (docs/agents.md)")
    # Slots for Activities, and how many a workflow may start eagerly in one task: with the SDK's 100 and 3, a fan-out
    # of 500 takes twice as long
    max_activities: int = Field(500, ge=1, le=10_000, description="how many Activities run at once (500)")
    tool_limits: Annotated[str, AfterValidator(_check_limits)] = Field(
        "", description="NAME=N, …: of these Activities at most N at once here, and the rest waits (docs/sizing.md)"
    )
    max_parallel: int | None = Field(None, ge=1, le=MAX_PARALLEL, description="the most that maxParallel may be")
    max_cost: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="US dollars for models that a run may cost at most"
    )
    day_cost: Annotated[str, AfterValidator(check_day_costs)] = Field(
        "", description="US dollars of all runs of a day, or for each value of a tag: 500, customer=20"
    )
    # Above four fifths of it, the worker gives up cached workflows. 0: no limit
    worker_memory: float = Field(
        default_factory=lambda: read_container_limit() >> 20, ge=0, le=1_000_000,
        description="MB that the process may take before it gives up cached workflows (the container's limit)",
    )  # fmt: skip
    # The server writes a version as NAME.BUILD and as NAME:BUILD, so a name has neither; Temporal's controller for
    # Kubernetes puts a "/" into it. 200 characters leave room for a build id in the 255 that the server allows
    deployment: str = Field(
        "", pattern=r"^[A-Za-z0-9_/-]{0,200}$",
        description="the Worker Deployment, with ACTS_BUILD_ID; runs end on their version (docs/deploy.md)",
    )  # fmt: skip
    # A digest of Git or of an image, a date, a semantic version; the names of Kubernetes' labels allow no more
    build_id: str = Field(
        "", pattern=r"^([A-Za-z0-9][A-Za-z0-9_.+-]{0,62})?$", description="the version of the code in it"
    )
    shutdown_seconds: _Seconds = Field(20.0, description="from a stop until the process ends, whatever still runs (20)")
    # C code that holds the interpreter lock for so long is not coming back: the server has given up its workflow tasks
    # after 10 s. As long as a stop may take by default, so that a stop during it is no later
    watchdog_seconds: _Seconds = Field(
        20.0, description="how long no Python code may run before the process is ended (20; 0: for ever)"
    )
    metrics: _Address = Field("", description="host:port of the Prometheus endpoint ``/metrics`` (none)")
    health: _Address = Field("", description="host:port of ``/live``, ``/ready`` and ``/runs/ID/events`` (none)")
    events_token: str = Field(
        "", description="the token that readers of events need beyond this machine (docs/clients.md)"
    )

    @classmethod
    def from_environment(cls, *, needs_build: bool = True) -> Self:
        """Read the settings and have each room check its own; a shell that starts no worker ``needs_build`` not.

        Raises SettingsError, as above.
        """
        if mistake := find_mistake(os.environ):
            raise SettingsError(mistake)
        settings = super().from_environment()
        if bool(settings.deployment) != bool(settings.build_id) and (needs_build or settings.build_id):
            raise SettingsError("worker versioning needs both ACTS_DEPLOYMENT and ACTS_BUILD_ID, or neither")
        _ = settings.delegate_sources, settings.set_sources, approvers_from_environment()
        sources.read_folders("ACTS_SCRIPTS", settings.scripts)
        sources.read_hosts("ACTS_HTTP_HOSTS", settings.http_hosts)
        sources.read_hosts("ACTS_HTTP_PRIVATE_HOSTS", settings.http_private_hosts, needs_port=True)
        check_setting(settings.secrets)
        check_endpoints()
        try:
            _ = codec_from_environment()
            away = verify_storage(writes=True)
        except (CodecError, StorageError) as error:
            raise SettingsError(str(error)) from error
        if away:
            logger.warning("external storage: %s; the worker starts, and waits for it where it is needed", away)
        return settings

    @property
    def delegate_sources(self) -> sources.DelegateSources:
        """The folders and hosts that definitions are loaded from."""
        folders = sources.read_folders(sources.FOLDERS, self.delegates)
        return _read_sources("ACTS_DELEGATE", folders, self.delegate_hosts, self.delegate_private_hosts)

    @property
    def set_sources(self) -> set_files.SetSources:
        """The folders and hosts that sets are read from, and the folders for results."""
        hosts = _read_sources("ACTS_DATA", (), self.data_hosts, self.data_private_hosts)
        data = sources.read_folders(set_files.DATA, self.data)
        return set_files.SetSources(data, sources.read_folders(set_files.RESULTS, self.results), hosts)

    @property
    def limits(self) -> dict[str, int]:
        """How many of an Activity may run at once in this worker, by its name."""
        parts = (part.rpartition("=") for part in filter(None, map(str.strip, self.tool_limits.split(","))))
        return {name.strip(): int(count) for name, _, count in parts}

    def check_limits(self, names: Collection[str]) -> None:
        """Raises SettingsError: ``ACTS_TOOL_LIMITS`` names what is none of these Activities of the worker."""
        if unknown := [name for name in self.limits if name not in names]:
            text = f"no Activity of this worker; it has {format_choices(names)}"
            raise SettingsError(f"ACTS_TOOL_LIMITS names {unknown[0]!r}, which is {text}")

    @property
    def deployment_config(self) -> WorkerDeploymentConfig | None:
        """A run and all that it starts end on the version that began it (worker versioning); None: unversioned."""
        if not self.deployment:
            return None
        version = WorkerDeploymentVersion(deployment_name=self.deployment, build_id=self.build_id)
        return WorkerDeploymentConfig(
            version, use_worker_versioning=True, default_versioning_behavior=VersioningBehavior.PINNED
        )


def list_variables() -> dict[str, str]:
    """The description of each variable, by its name."""
    return {f"{PREFIX}{name.upper()}": field.description or "" for name, field in Settings.model_fields.items()}
