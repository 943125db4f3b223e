"""What the environment sets for logs, metrics and health checks; each problem names the variable.

    ACTS_LOG         ``text`` (one readable line per record) or ``json`` (one object per line)
    ACTS_LOG_LEVEL   debug, info, warning or error
    ACTS_METRICS     host:port of the Prometheus endpoint ``/metrics`` (none: no metrics)
    ACTS_HEALTH      host:port of ``/live`` and ``/ready`` (none: no server)

Traces are switched on by OpenTelemetry's own variables (``tracing.py``). Laws of this file: it opens nothing.
"""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

METRICS: Final = "ACTS_METRICS"
HEALTH: Final = "ACTS_HEALTH"
_MAX_PORT: Final = 65_535


class TelemetryError(Exception):
    """A variable has no usable value, or what it asks for is not there."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens: an IP address and a port; port 0: any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class TelemetrySettings:
    """What is written and served beside the work."""

    log_format: str = "text"
    log_level: str = "info"
    metrics: Address | None = None
    health: Address | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> TelemetrySettings:
        """Raises TelemetryError, naming the variable, what it holds and what is allowed."""
        values = os.environ if environment is None else environment
        return cls(
            _choose(values, "ACTS_LOG", "text", "json"),
            _choose(values, "ACTS_LOG_LEVEL", "info", "debug", "warning", "error"),
            _read_address(values, METRICS, "127.0.0.1:9464"),
            _read_address(values, HEALTH, "127.0.0.1:8081"),
        )


def _choose(values: Mapping[str, str], name: str, default: str, *others: str) -> str:
    text = values.get(name) or default
    if text.lower() not in (default, *others):
        raise TelemetryError(f"{name} is {text!r}; it is one of {', '.join((default, *others))}")
    return text.lower()


def _read_address(values: Mapping[str, str], name: str, example: str) -> Address | None:
    text = values.get(name)
    if not text:
        return None
    match = re.fullmatch(r"(.+):([0-9]{1,5})", text)
    if match is None or int(match[2]) > _MAX_PORT:
        raise TelemetryError(f"{name} is {text!r}; it is host:port, such as {example}")
    try:
        addresses = socket.getaddrinfo(match[1].strip("[]"), int(match[2]), type=socket.SOCK_STREAM)
    except OSError as error:
        raise TelemetryError(f"{name} is {text!r}; its host has no address: {error.strerror or error}") from None
    return Address(str(addresses[0][4][0]), int(match[2]))
