"""The requests of one question to a model, over all attempts of the activity.

An attempt that fails or is killed loses its memory. So all of it travels in the details of the heartbeats, which
Temporal keeps for the next attempt: no usage is lost, and an outage is measured from its beginning. Nothing here
decides anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from acts.activities.models.interface import ModelError, ModelResponse
from acts.language.usage import Usage

# Details of heartbeats stay small
_MAX_NOTES: Final = 10


@dataclass
class RequestLog:
    """``place`` is the position of the model among the candidates; ``failures`` say why the models before it failed.

    ``outage_since`` is the Unix time at which the present model first failed for want of capacity. ``planned`` counts
    the retries that this activity asked for, ``broken`` those after an answer that broke off. ``answers`` counts
    unusable answers, ``cap`` is the cap that follows a truncated answer, in tokens. ``waiting`` is for people.
    """

    usage: Usage = field(default_factory=Usage)
    notes: list[str] = field(default_factory=list)
    place: int = 0
    failures: list[str] = field(default_factory=list)
    outage_since: float | None = None
    planned: int = 0
    broken: int = 0
    answers: int = 0
    cap: int | None = None
    waiting: str = ""
    is_reported: bool = False

    @classmethod
    def resume(cls, details: Sequence[Any]) -> RequestLog:
        """The log of the attempts before, as their last heartbeat has it; an empty one without a heartbeat."""
        try:
            return _LOG.validate_python(details[0])
        except (IndexError, ValidationError):
            return cls()

    def to_details(self) -> dict[str, Any]:
        """The details of a heartbeat, without what is empty."""
        details: dict[str, Any] = _LOG.dump_python(self, mode="json", exclude_defaults=True)
        return details

    def add(self, result: ModelResponse | ModelError) -> None:
        """Count a request whose usage is known: it costs also without a usable answer."""
        if (tokens := result.tokens) is None:
            return
        usage: dict[str, Any] = {"requests": 1, "cost": result.cost, **asdict(tokens)}
        if isinstance(result, ModelResponse):
            self.note(*result.notes)
            usage["schemaForms"] = {result.form: 1} if result.form not in ("", "strict") else {}
        self.usage.add(usage)

    def note(self, *texts: str) -> None:
        """Remarks for people; each once."""
        self.notes = list(dict.fromkeys((*self.notes, *texts)))[:_MAX_NOTES]

    def end_outage(self) -> None:
        """The model answers, or another one is asked."""
        self.outage_since, self.broken, self.waiting = None, 0, ""

    def fail_over(self, model: str, reason: str) -> None:
        """Go to the next model."""
        self.failures.append(f"{model}: {reason}")
        self.note(f"{model} was given up for another model: {reason}")
        self.place += 1
        self.end_outage()


_LOG: Final = TypeAdapter(RequestLog)
