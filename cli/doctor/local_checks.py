"""What ``acts doctor`` finds in the environment of this shell: settings, tools, keys, MCP servers, addresses.

Laws of this file: a worker's environment may be another one, so run the command where the worker runs; no request is
made to a model (``model_checks.py`` does, where it is asked to), and the value of a key is never shown.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from activities.providers.endpoints import EndpointsError, from_environment
from activities.registry import RegistryError
from activities.registry import from_environment as registry_from_environment
from cli.console import clean, count_text
from cli.doctor.findings import Finding, fail, ok, warn

if TYPE_CHECKING:
    from activities.registry import Registry

# Providers with settings of their own -> the variables that may hold their key
_KEYS: Final = {"anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"), "openai": ("OPENAI_API_KEY",)}
# Settings of how payloads are written, read by ``connection``
_PAYLOADS: Final = {"codec": "ACTS_CODEC_KEYS", "storage": "ACTS_STORAGE"}
# Addresses that a worker opens
_ADDRESSES: Final = ("ACTS_METRICS", "ACTS_HEALTH")
CONNECT_SECONDS: Final = 2.0  # a server across an ocean answers in 0.3 s
_PORTS: Final = {"http": 80, "https": 443}


def check_settings() -> list[Finding]:
    """Whether a worker would start with the settings of this shell."""
    from worker_settings import Settings, SettingsError

    try:
        settings = Settings.from_environment()
    except SettingsError as error:
        return [fail("settings", clean(error, 500), "a worker does not start with it; docs/deploy.md lists them all")]
    version = settings.deployment
    pinned = f", version {version.deployment_name}:{version.build_id}" if version else ""
    return [ok("settings", f"a worker would serve the task queue {settings.task_queue!r}{pinned}")]


def load_registry() -> tuple[Registry | None, list[Finding]]:
    """The tools that this shell's settings load, and what is wrong with them."""
    try:
        registry = registry_from_environment()
    except RegistryError as error:
        return None, [fail("tools", clean(error, 500), "a worker does not start with it")]
    if not registry.tools and not registry.activities and not registry.servers.configs:
        text = "none are loaded here: ACTS_ACTIVITIES, ACTS_TOOLS and ACTS_MCP are not set"
        return registry, [ok("tools", text)]
    numbers = f"{count_text(len(registry.tools), 'tool')} and {len(registry.activities)} activities load"
    return registry, [ok("tools", numbers)]


def check_payloads() -> list[Finding]:
    """Whether the settings of encryption and storage can be read, if they are set."""
    present = {name: variable for name, variable in _PAYLOADS.items() if os.environ.get(variable)}
    if not present:
        return [ok("payloads", "neither encrypted nor stored elsewhere (ACTS_CODEC_KEYS, ACTS_STORAGE)")]
    from connection.converter import client_converter

    variables = " and ".join(present.values())
    try:
        client_converter()
    except Exception as error:  # noqa: BLE001 - whatever is wrong with the settings is what a doctor reports
        hint = "a worker and every client need the same settings; without them payloads cannot be read"
        return [fail("payloads", f"{variables}: {clean(error, 500)}", hint)]
    return [ok("payloads", f"{variables} can be read")]


def check_models() -> list[Finding]:
    """Which models have a key here."""
    providers = [p for p, names in _KEYS.items() if any(os.environ.get(name) for name in names)]
    try:
        endpoints = from_environment()
    except EndpointsError as error:
        return [fail("models", clean(error, 500))]
    broken: list[Finding] = []
    for endpoint in endpoints.values():
        try:
            endpoint.read_key()
            endpoint.require_extra()
        except EndpointsError as error:
            broken.append(fail("models", clean(error, 500), "a worker does not start with it"))
    able = [*(f"{p}:…" for p in providers), *(f"{name}/…" for name in endpoints)]
    if broken:
        return broken
    if not able:
        hint = "plans need none; agents and latent calls do (docs/models.md)"
        return [ok("models", "no model has a key here", hint)]
    return [ok("models", f"{', '.join(able)} can be asked; `acts doctor --ask MODEL` asks one")]


async def check_mcp(registry: Registry) -> list[Finding]:
    """Whether the command of each MCP server exists, or something answers at its address."""
    findings = []
    for name, config in registry.servers.configs.items():
        if config.command is not None:
            path = shutil.which(config.command, path=config.env.get("PATH"))
            missing = f'MCP server "{name}": there is no program {config.command!r} on PATH'
            findings.append(ok("mcp", f'MCP server "{name}": {path}') if path else fail("mcp", missing))
            continue
        url = urlsplit(config.url or "")
        where = f"{url.hostname}:{url.port or _PORTS.get(url.scheme, 0)}"
        if await is_listening(where):
            findings.append(ok("mcp", f'MCP server "{name}": {where} answers'))
        else:
            findings.append(
                fail("mcp", f'MCP server "{name}": nothing answers at {where}', "its tools are unavailable")
            )
    return findings


async def check_addresses() -> list[Finding]:
    """Whether the addresses that a worker opens are well formed, and whether one has opened them."""
    findings = []
    for variable in _ADDRESSES:
        value = os.environ.get(variable)
        if not value:
            continue
        host, _, port = value.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 2**16:
            findings.append(fail("ports", f"{variable} is {clean(value, 100)!r}; it is host:port, like 0.0.0.0:9464"))
        elif await is_listening(value.replace("0.0.0.0", "127.0.0.1")):  # noqa: S104 - read, not bound
            findings.append(ok("ports", f"{variable}: something listens at {value}"))
        else:
            findings.append(
                warn("ports", f"{variable}: nothing listens at {value}", "a worker with this setting opens it")
            )
    return findings


async def is_listening(address: str) -> bool:
    """True when ``host:port`` accepts a connection."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, TimeoutError, ValueError):
        return False
    writer.close()
    return True
