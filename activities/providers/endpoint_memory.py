"""What an endpoint has rejected: parameters, efforts, answers of some length. Kept as long as the worker lives.

Models and servers differ, and few say so in advance. A rejection is read once, the request is made again without what
was rejected, and so are all later ones. Each adaptation has a note for people.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Final

from activities.providers.interface import ModelRequest
from activities.providers.model_table import EFFORTS, known_efforts, max_output_tokens, nearest_effort
from activities.providers.provider_errors import ProviderFault

EFFORT: Final = "effort"
CAP: Final = "cap"
SCHEMA: Final = "schema"
TEMPERATURE: Final = "temperature"
# How providers state the longest answer of a model when a request asks for a longer one
_CEILINGS: Final = (
    re.compile(r"max_tokens:? ?[\d,]+ > ([\d,]+)", re.IGNORECASE),
    re.compile(r"supports at most ([\d,]+) (completion|output)? ?tokens", re.IGNORECASE),
    re.compile(r"max_(?:completion_|output_)?tokens\D{0,80}?(?:less than or equal to|at most|<=|maximum(?: of| is)?)"
               r" ?([\d,]+)", re.IGNORECASE),
)  # fmt: skip
_ABOUT_EFFORT: Final = re.compile(
    r"\b(reasoning[._])?effort\b|invalid (think|reasoning) value|does not support (thinking|reasoning)", re.IGNORECASE
)
_QUOTED: Final = re.compile(r"['\"`](none|minimal|low|medium|high|xhigh|max)['\"`]")
_BAD_REQUEST: Final = (400, 422)


class RejectedError(Exception):
    """The provider rejects a part of the request: the schema as a strict one, the cap, the effort, or a parameter."""

    def __init__(self, name: str, reason: str = "") -> None:
        super().__init__(name)
        self.name, self.reason = name, reason


@dataclass
class EndpointMemory:
    """What one model at one server has rejected. ``ceiling`` is its longest answer, as far as it said so."""

    model: str
    parameters: set[str] = field(default_factory=set)
    ceiling: int | None = None
    efforts: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        self.efforts = known_efforts(self.model)

    def adapt(self, request: ModelRequest, default_cap: int | None) -> tuple[ModelRequest, tuple[str, ...]]:
        """The request as the endpoint takes it, and notes about what differs from the settings.

        ``default_cap`` is the cap of a request that sets none; None: none is sent.
        """
        notes: list[str] = []
        cap, most = request.maxOutputTokens or default_cap, self.longest_answer
        if cap is not None and most is not None and cap > most:
            if request.maxOutputTokens is not None:
                notes.append(f"maxOutputTokens {cap:,} was lowered to {most:,}, the most that {self.model} writes")
            cap = most
        effort = request.effort
        if effort is not None and (self.efforts == () or EFFORT in self.parameters):
            notes.append(f'effort "{effort}" was left out: {self.model} takes none')
            effort = None
        elif effort is not None and self.efforts and effort not in self.efforts:
            nearest = nearest_effort(effort, self.efforts)
            notes.append(f'effort "{effort}" was sent as "{nearest}": {self.model} takes {", ".join(self.efforts)}')
            effort = nearest
        temperature = request.temperature
        if temperature is not None and TEMPERATURE in self.parameters:
            notes.append(f"temperature {temperature:g} was left out: {self.model} takes none")
            temperature = None
        return replace(request, maxOutputTokens=cap, effort=effort, temperature=temperature), tuple(notes)

    @property
    def longest_answer(self) -> int | None:
        """The longest answer in tokens: as the server said, or as the table has it."""
        return max_output_tokens(self.model) if self.ceiling is None else self.ceiling

    def note_rejection(self, name: str, reason: str, sent: ModelRequest) -> None:
        """Remember what was rejected."""
        if name == CAP:
            self.ceiling = stated_ceiling(reason)
        elif name == EFFORT:
            listed = tuple(e for e in EFFORTS if e in _QUOTED.findall(reason) and e != sent.effort)
            self.efforts = listed if listed and self.efforts != listed else ()
        else:
            self.parameters.add(name)


def rejected_setting(fault: ProviderFault, sent: ModelRequest, cap: int | None) -> str | None:
    """``cap`` or ``effort``, where the provider rejects what was sent of it; ``cap`` is the one that was sent."""
    if fault.status not in _BAD_REQUEST:
        return None
    ceiling = stated_ceiling(fault.message)
    if ceiling is not None and cap is not None and 0 < ceiling < cap:
        return CAP
    return EFFORT if sent.effort is not None and _ABOUT_EFFORT.search(fault.message) else None


def stated_ceiling(message: str) -> int | None:
    """The longest answer of a model in tokens, as a provider's message states it."""
    match = next((m for pattern in _CEILINGS if (m := pattern.search(message))), None)
    return None if match is None else int(match[1].replace(",", ""))


@dataclass
class Memories:
    """The memories of an adapter's endpoints."""

    by_endpoint: dict[tuple[Any, str], EndpointMemory] = field(default_factory=dict)

    def of(self, base: str, model: str) -> EndpointMemory:
        """The memory of one model at one server."""
        return self.by_endpoint.setdefault((base, model), EndpointMemory(model))
