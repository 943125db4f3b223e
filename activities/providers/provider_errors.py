"""What went wrong at a provider, in our words: one table of codes, one of causes.

* ``retryable`` says whether the same request may succeed later. A provider's own word
  (``x-should-retry``) goes before our guess, save where money is missing.
* A message says what to do. It never holds a key.
"""

from __future__ import annotations

import email.utils
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from activities.providers.interface import ModelError

# code: (retryable, what to do)
CODES: Final[dict[str, tuple[bool, str]]] = {
    "modelNoKey": (False, "set the environment variable it names"),
    "modelUnauthorized": (False, "check the key"),
    "modelForbidden": (False, "the key may not use this model: check its rights"),
    "modelOutOfMoney": (False, "add credit or raise the spending limit at the provider"),
    "modelUnknown": (False, "set config.model to a model that the provider has"),
    "modelBadRequest": (False, "the provider did not take the request"),
    "modelContextFull": (
        False,
        "the context is too long for this model: scope it, or use a model with a larger window",
    ),
    "modelRefused": (False, "the model refuses to answer: change the task or the model"),
    "modelTruncated": (False, "raise config.maxOutputTokens, or let the model answer less at once"),
    "modelNotJson": (False, "the answer is not JSON: ask again, or use a model that follows schemas"),
    "modelRateLimit": (True, "too many requests: it is tried again later"),
    "modelOverloaded": (True, "the provider is overloaded: it is tried again later"),
    "modelUnavailable": (True, "the provider failed or cannot be reached: it is tried again later"),
    "modelTimeout": (True, "nothing arrived in time: it is tried again"),
    "modelCut": (True, "the answer broke off: it is tried again"),
}

# Words of the providers for a cause (error type, code, or reason), whatever the status is
_CAUSES: Final[dict[str, str]] = {
    # both
    "rate_limit_error": "modelRateLimit",
    "rate_limit_exceeded": "modelRateLimit",
    "overloaded_error": "modelOverloaded",
    "server_error": "modelUnavailable",
    "api_error": "modelUnavailable",
    "internal_server_error": "modelUnavailable",
    "timeout_error": "modelUnavailable",
    "authentication_error": "modelUnauthorized",
    "invalid_api_key": "modelUnauthorized",
    "permission_error": "modelForbidden",
    "not_found_error": "modelUnknown",
    "model_not_found": "modelUnknown",
    # money
    "billing_error": "modelOutOfMoney",
    "enforced_spend_limit_reached": "modelOutOfMoney",
    "insufficient_quota": "modelOutOfMoney",
    "credit_balance_exhausted": "modelOutOfMoney",
    "billing_hard_limit_reached": "modelOutOfMoney",
    "billing_not_active": "modelOutOfMoney",
    # the request
    "context_length_exceeded": "modelContextFull",
    "request_too_large": "modelContextFull",
    "invalid_request_error": "modelBadRequest",
    "data_residency_mismatch": "modelBadRequest",
    # policies
    "invalid_prompt": "modelRefused",
    "content_filter": "modelRefused",
    "content_policy_violation": "modelRefused",
    "bio_policy": "modelRefused",
    "cyber_policy": "modelRefused",
    "misalignment_policy_violation": "modelRefused",
}
# Words so general that a status says more
_GENERAL: Final = frozenset({"modelBadRequest", "modelUnavailable"})
_STATUS: Final[dict[int, str]] = {
    401: "modelUnauthorized",
    402: "modelOutOfMoney",
    403: "modelForbidden",
    404: "modelUnknown",
    408: "modelUnavailable",
    409: "modelUnavailable",
    413: "modelContextFull",
    429: "modelRateLimit",
    503: "modelOverloaded",
    529: "modelOverloaded",
}
_MONEY: Final = re.compile(r"credit balance is too low|exceeded your current quota|spend(ing)? limit", re.IGNORECASE)
_TOO_LONG: Final = re.compile(
    r"prompt is too long|maximum context length|context (length|window|size)|exceeds? the (available )?context",
    re.IGNORECASE,
)
_SCHEMA: Final = re.compile(
    r"too complex|grammar|too many (optional |union )?(parameters|properties)|schema|circular reference"
    r"|output_config|output_format|response_format|text\.format|structured output",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Cause:
    """What a provider said. ``words`` are its error type, code and the like, the most telling first."""

    provider: str
    model: str
    message: str
    status: int | None = None
    words: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    requestId: str | None = None

    @property
    def code(self) -> str:
        """Our word for it."""
        known = [_CAUSES[w] for w in self.words if w in _CAUSES]
        asked = self.status in (None, 200, 400, 413, 422)  # what else it may be, these are about the request
        if "modelOutOfMoney" in known or ((asked or self.status == _TOO_MANY) and _MONEY.search(self.message)):
            return "modelOutOfMoney"
        if "modelContextFull" in known or (asked and _TOO_LONG.search(self.message)):
            return "modelContextFull"
        special = next((code for code in known if code not in _GENERAL), None)
        by_status = _STATUS.get(self.status or 0)
        if special or by_status:
            return special or by_status or ""
        if self.status is not None and self.status >= 400:  # noqa: PLR2004 - HTTP's own border
            return "modelBadRequest" if self.status < 500 else "modelUnavailable"  # noqa: PLR2004 - as above
        return known[0] if known else "modelUnavailable"

    @property
    def schema_refused(self) -> bool:
        """True when the provider did not take the schema, or cannot follow one at all."""
        return self.status in (400, 422) and self.code == "modelBadRequest" and bool(_SCHEMA.search(self.message))

    def error(self, **more: Any) -> ModelError:
        """The error; ``more`` is what was spent and what had arrived."""
        code = self.code
        retryable = CODES[code][0]
        said = self.headers.get("x-should-retry")
        if said in ("true", "false") and code != "modelOutOfMoney":
            retryable = said == "true"
        details = {"status": self.status, "type": self.words[0] if self.words else None, "requestId": self.requestId}
        return ModelError(
            code,
            f"{self.provider} ({self.model}): {_cut(self.message)}; {CODES[code][1]}",
            retryable=retryable,
            retryAfter=retry_after(self.headers) if retryable else None,
            details={k: v for k, v in details.items() if v is not None},
            **more,
        )


_TOO_MANY: Final = 429
# Providers quote whole requests; a history keeps every message for as long as it is kept
_MAX_MESSAGE: Final = 600


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE else text[:_MAX_MESSAGE] + "…"


def failure(code: str, provider: str, model: str, message: str, **more: Any) -> ModelError:
    """An error that we found ourselves."""
    retryable, advice = CODES[code]
    return ModelError(code, f"{provider} ({model}): {_cut(message)}; {advice}", retryable=retryable, **more)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds to wait that the headers ask for: milliseconds, seconds or an HTTP date."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    date = email.utils.parsedate_tz(headers.get("retry-after", ""))
    return None if date is None else max(0.0, email.utils.mktime_tz(date) - time.time())
