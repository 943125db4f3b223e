"""Provider failures in our terms: one table of our codes, one of the providers' words for causes.

* ``retryable`` says whether the same request may succeed later. A provider's own word (``x-should-retry``) overrides
  ours, except where money is missing.
* A message says what to do. It never contains a key.
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
from acts.language.errors import truncate

# code: (retryable, what to do)
CODES: Final[dict[str, tuple[bool, str]]] = {
    "modelNoKey": (False, "set the environment variable it names"),
    "modelUnauthorized": (False, "check the key"),
    "modelForbidden": (False, "the key may not use this model: check its rights"),
    "modelOutOfMoney": (False, "add credit or raise the spending limit at the provider"),
    "modelUnknown": (False, "set config.model to a model that the provider has"),
    "modelBadRequest": (False, "the provider rejected the request"),
    "modelContextFull": (
        False,
        "the context is too long for this model: scope it, or use a model with a larger window",
    ),
    "modelRefused": (False, "the model refused to answer: change the task or the model"),
    "modelTruncated": (False, "raise config.maxOutputTokens, or let the model answer less at once"),
    "modelNotJson": (False, "the answer is not JSON: ask again, or use a model that follows schemas"),
    "modelRequestTooLarge": (
        False,
        "the request alone exceeds the account's rate limit: scope the context, lower maxOutputTokens, or raise it",
    ),
    "modelRateLimit": (True, "too many requests: a later attempt may succeed"),
    "modelOverloaded": (True, "the provider is overloaded: a later attempt may succeed"),
    "modelUnavailable": (True, "the provider failed or is unreachable: a later attempt may succeed"),
    "modelTimeout": (True, "nothing arrived in time: a later attempt may succeed"),
    "modelCut": (True, "the answer broke off: a later attempt may succeed"),
}

# The providers' words for a cause (error type, code, or reason), whatever the HTTP status
_CODE_OF_WORD: Final[dict[str, str]] = {
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
    "invalid_model": "modelUnknown",
    "API_KEY_INVALID": "modelUnauthorized",
    "exceed_context_size_error": "modelContextFull",
    # the streams of Bedrock
    "throttlingException": "modelRateLimit",
    "serviceUnavailableException": "modelOverloaded",
    "modelNotReadyException": "modelOverloaded",
    "internalServerException": "modelUnavailable",
    "modelStreamErrorException": "modelUnavailable",
    "modelTimeoutException": "modelUnavailable",
    "validationException": "modelBadRequest",
    "accessDeniedException": "modelForbidden",
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
# Codes so general that the HTTP status is more specific
_GENERAL: Final = frozenset({"modelBadRequest", "modelUnavailable"})
_CODE_OF_STATUS: Final[dict[int, str]] = {
    401: "modelUnauthorized",
    402: "modelOutOfMoney",
    403: "modelForbidden",
    404: "modelUnknown",
    410: "modelUnknown",
    408: "modelUnavailable",
    409: "modelUnavailable",
    413: "modelContextFull",
    429: "modelRateLimit",
    503: "modelOverloaded",
    529: "modelOverloaded",
}
_MONEY: Final = re.compile(r"credit balance is too low|exceeded your current quota|spend(ing)? limit", re.IGNORECASE)
# A 429 that no waiting helps: the request alone has more tokens than a minute allows, or than the plan does
_TOO_LARGE: Final = re.compile(
    r"request too large|tokens must be reduced|required for long context requests", re.IGNORECASE
)
_UNKNOWN_MODEL: Final = re.compile(r"not a valid model id|invalid model: |model .{1,100} does not exist", re.IGNORECASE)
_LIMIT_AND_REQUESTED: Final = re.compile(r"limit:? *([\d,]+).{0,80}?requested:? *([\d,]+)", re.IGNORECASE)
_FULL_CONTEXT: Final = re.compile(
    r"prompt is too long|maximum context length|context (length|window|size)|exceeds? the (available )?context"
    r"|input token count .{0,40}exceeds",
    re.IGNORECASE,
)
_SCHEMA_WORDS: Final = re.compile(
    r"too complex|grammar|too many (optional |union )?(parameters|properties)|schema|circular reference"
    r"|output_config|output_format|response_format|text\.format|structured output",
    re.IGNORECASE,
)
# HTTP statuses
_TOO_MANY_REQUESTS: Final = 429
_CLIENT_ERROR: Final = 400
_SERVER_ERROR: Final = 500
# Statuses of errors about the content of the request; with these, the wording of the message counts
_ABOUT_CONTENT: Final = (None, 200, 400, 413, 422)
# Providers quote whole requests, and a history keeps every message as long as the run is kept
_MAX_MESSAGE: Final = 600


@dataclass(frozen=True)
class ProviderFault:
    """An error as a provider stated it. ``words`` are its error code, type and the like, the most specific first.

    ``fields`` are the places in the request that it is about.
    """

    provider: str
    model: str
    message: str
    status: int | None = None
    words: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    requestId: str | None = None
    fields: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """Our code for it."""
        codes = [_CODE_OF_WORD[w] for w in self.words if w in _CODE_OF_WORD]
        is_about_content = self.status in _ABOUT_CONTENT
        may_be_about_money = is_about_content or self.status == _TOO_MANY_REQUESTS
        if "modelOutOfMoney" in codes or (may_be_about_money and self._is_about_money):
            return "modelOutOfMoney"
        if "modelContextFull" in codes or (is_about_content and _FULL_CONTEXT.search(self.message)):
            return "modelContextFull"
        if self.status == _TOO_MANY_REQUESTS and _is_too_large(self.message):
            return "modelRequestTooLarge"
        if is_about_content and _UNKNOWN_MODEL.search(self.message):
            return "modelUnknown"
        specific = next((code for code in codes if code not in _GENERAL), None) or _CODE_OF_STATUS.get(self.status or 0)
        if specific:
            return specific
        if self.status is not None and self.status >= _CLIENT_ERROR:
            return "modelBadRequest" if self.status < _SERVER_ERROR else "modelUnavailable"
        return codes[0] if codes else "modelUnavailable"

    @property
    def _is_about_money(self) -> bool:
        """True for a message about money. Gemini calls a limit per minute an exceeded quota, and says when to retry."""
        is_passing = self.status == _TOO_MANY_REQUESTS and parse_retry_after(self.headers) is not None
        return not is_passing and bool(_MONEY.search(self.message))

    @property
    def is_schema_rejection(self) -> bool:
        """True when the provider rejected the schema, or does not support strict schemas at all."""
        is_bad_request = self.status in (400, 422) and self.code == "modelBadRequest"
        return is_bad_request and bool(_SCHEMA_WORDS.search(self.message))

    def to_error(self, **usage: Any) -> ModelError:
        """The ModelError; ``usage`` is what ``ResponseStream.usage`` returns."""
        code = self.code
        retryable = CODES[code][0]
        should_retry = self.headers.get("x-should-retry")
        if should_retry in ("true", "false") and code not in ("modelOutOfMoney", "modelRequestTooLarge"):
            retryable = should_retry == "true"
        details = {"status": self.status, "type": self.words[0] if self.words else None, "requestId": self.requestId}
        return ModelError(
            code,
            _message(code, self.provider, self.model, self.message),
            retryable=retryable,
            retryAfter=parse_retry_after(self.headers) if retryable else None,
            details={k: v for k, v in details.items() if v is not None},
            **usage,
        )


def build_error(code: str, provider: str, model: str, message: str, **more: Any) -> ModelError:
    """The ModelError of a failure that an adapter detects itself."""
    return ModelError(code, _message(code, provider, model, message), retryable=CODES[code][0], **more)


def _message(code: str, provider: str, model: str, message: str) -> str:
    return f"{provider} ({model}): {truncate(message, _MAX_MESSAGE)}; {CODES[code][1]}"


def _is_too_large(message: str) -> bool:
    """True for a rate limit that the request exceeds by itself, whatever was used before."""
    numbers = _LIMIT_AND_REQUESTED.search(message)
    if numbers is not None:
        limit, requested = (int(text.replace(",", "")) for text in numbers.groups())
        return requested > limit
    return bool(_TOO_LARGE.search(message))


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds to wait that the headers ask for: in milliseconds, in seconds, or as an HTTP date."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    date = email.utils.parsedate_tz(headers.get("retry-after", ""))
    return None if date is None else max(0.0, email.utils.mktime_tz(date) - time.time())
