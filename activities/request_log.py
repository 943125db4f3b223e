"""What the requests of one question to a model came to so far, over all attempts of the activity.

An attempt that fails or is killed loses its memory. So all of it travels in the details of the heartbeats, which
Temporal keeps for the next attempt: no usage is lost, and an outage is measured from its beginning. Nothing here
decides anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from activities.providers.interface import ModelError, ModelResponse, TokenCounts
from acts.language.usage import Usage
from acts.language.values import Json

# Requests that are listed, the latest: details of heartbeats stay small
_MAX_REQUESTS: Final = 20
_MAX_NOTES: Final = 10


@dataclass
class RequestLog:
    """``place`` is that of the model among the candidates; ``failures`` are those of the models before it.

    ``outage_since`` is the Unix time at which the present model first failed for want of capacity, and ``tries`` how
    often it has since. ``planned`` counts the retries that this activity asked for, ``broken`` those after an answer
    that broke off. ``answers`` counts unusable answers, ``cap`` is that of the request
    after a truncated one, in tokens. ``calls`` is the number of
    Calls that the present answer has so far.
    """

    requests: list[dict[str, Any]] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    notes: list[str] = field(default_factory=list)
    place: int = 0
    failures: list[str] = field(default_factory=list)
    outage_since: float | None = None
    tries: int = 0
    planned: int = 0
    broken: int = 0
    answers: int = 0
    cap: int | None = None
    waiting: str = ""
    is_reported: bool = False
    calls: int = 0

    @classmethod
    def resume(cls, details: Sequence[Any]) -> RequestLog:
        """The log of the attempts before, as their last heartbeat has it; an empty one where there is none."""
        data = details[0] if details and isinstance(details[0], dict) else {}
        log = cls(
            requests=list(data.get("requests") or ()), notes=list(data.get("notes") or ()),
            failures=list(data.get("failures") or ()),
        )  # fmt: skip
        log.usage.add(data.get("usage"))
        for name in ("place", "tries", "planned", "broken", "answers", "cap", "outage_since",
                     "is_reported"):  # fmt: skip
            setattr(log, name, data.get(name, getattr(log, name)))
        return log

    def to_details(self) -> dict[str, Any]:
        """The details of a heartbeat; what is empty is left out. ``waiting`` is for people."""
        state = {
            "place": self.place, "tries": self.tries, "planned": self.planned, "broken": self.broken,
            "answers": self.answers, "cap": self.cap, "notes": self.notes,
            "outage_since": self.outage_since, "failures": self.failures, "waiting": self.waiting,
            "requests": self.requests, "is_reported": self.is_reported,
        }  # fmt: skip
        return {"calls": self.calls, "usage": self.usage.to_json(), **{k: v for k, v in state.items() if v}}

    def count_call(self, index: int, _: Json) -> None:
        """Note a Call that has arrived."""
        self.calls = index + 1

    def add(self, response: ModelResponse, code: str | None = None) -> None:
        """Record a request that was answered; ``code`` says why it is of no use."""
        tokens = response.tokens
        usage = {
            "inputTokens": tokens.inputTokens, "outputTokens": tokens.outputTokens,
            "cachedTokens": tokens.cachedTokens, "reasoningTokens": tokens.reasoningTokens, "cost": response.cost,
        }  # fmt: skip
        forms = {response.form: 1} if response.form not in ("", "strict") else {}
        self.usage.add({"requests": 1, **usage, "schemaForms": forms})
        item = {"requestId": response.requestId, "model": response.model, "strict": response.strict, "usage": usage}
        self.requests.append(item | ({"form": response.form} if forms else {}) | ({"code": code} if code else {}))
        del self.requests[:-_MAX_REQUESTS]
        for note in response.notes:
            self.note(note)

    def add_failed(self, error: ModelError) -> None:
        """Record a request without a usable answer, where its usage is known: it costs all the same."""
        if error.tokens is not None:
            tokens: TokenCounts = error.tokens
            response = ModelResponse(error.text, None, tokens, error.cost, error.details.get("requestId"), form="")
            self.add(response, error.code)

    def note(self, text: str) -> None:
        """A remark for people; each once."""
        if text not in self.notes and len(self.notes) < _MAX_NOTES:
            self.notes.append(text)

    def end_outage(self) -> None:
        """The model answers, or another one is asked."""
        self.outage_since, self.tries, self.broken, self.waiting = None, 0, 0, ""

    def fail_over(self, model: str, reason: str) -> None:
        """Go to the next model."""
        self.failures.append(f"{model}: {reason}")
        self.note(f"{model} was given up for another model: {reason}")
        self.place += 1
        self.end_outage()
