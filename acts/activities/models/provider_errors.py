"""Provider failures in our terms: one table of our codes, one of the providers' words for causes, one reader of bodies.

* ``retryable`` says whether the same request may succeed later. A provider's own word (``x-should-retry``) overrides
  ours, except where money is missing.
* A message says what to do. It never contains a key.
* What a server rejects is not learned: it is declared as a quirk of its endpoint.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from acts.activities.models.interface import ModelError
from acts.language.errors import truncate

# code: (retryable, what to do)
CODES: Final[dict[str, tuple[bool, str]]] = {
    "modelNoKey": (False, "set the environment variable it names"),
    "modelUnauthorized": (False, "check the key"),
    "modelForbidden": (False, "the key may not use this model: check its rights"),
    "modelOutOfMoney": (False, "add credit or raise the spending limit at the provider"),
    "modelUnknown": (False, "set config.model to a model that the provider has"),
    "modelBadRequest": (False, "what a server does not take is declared for its endpoint: quirks, in ACTS_MODELS"),
    "modelContextFull": (False, "the context is too long: scope it, or use a model with a larger window"),
    "modelRefused": (False, "the model refused to answer: change the task or the model"),
    "modelTruncated": (False, "raise config.maxOutputTokens, or let the model answer less at once"),
    "modelNotJson": (False, "the answer is not JSON: ask again, or use a model that follows schemas"),
    "modelRequestTooLarge": (False, "the request alone exceeds a rate limit: scope it, or lower maxOutputTokens"),
    "modelRateLimit": (True, "too many requests: a later attempt may succeed"),
    "modelOverloaded": (True, "the provider is overloaded: a later attempt may succeed"),
    "modelUnavailable": (True, "the provider failed or is unreachable: a later attempt may succeed"),
    "modelTimeout": (True, "nothing arrived in time: a later attempt may succeed"),
    "modelCut": (True, "the answer broke off: a later attempt may succeed"),
}
# The providers' words for a cause (error type, code, or reason), whatever the HTTP status
_WORDS: Final = {
    "modelUnauthorized": "authentication_error invalid_api_key API_KEY_INVALID",
    "modelOutOfMoney": "billing_error insufficient_quota enforced_spend_limit_reached billing_hard_limit_reached",
    "modelForbidden": "permission_error accessDeniedException",
    "modelUnknown": "not_found_error model_not_found invalid_model",
    "modelContextFull": "context_length_exceeded request_too_large exceed_context_size_error",
    "modelRateLimit": "rate_limit_error rate_limit_exceeded throttlingException",
    "modelOverloaded": "overloaded_error serviceUnavailableException modelNotReadyException",
    "modelRefused": "invalid_prompt content_filter content_policy_violation bio_policy cyber_policy",
    "modelBadRequest": "invalid_request_error validationException",
}
_CODE_OF_WORD: Final = {word: code for code, words in _WORDS.items() for word in words.split()}
_STATUSES: Final = {
    "modelUnauthorized": (401,),
    "modelOutOfMoney": (402,),
    "modelForbidden": (403,),
    "modelUnknown": (404, 410),
    "modelUnavailable": (408, 409),
    "modelContextFull": (413,),
    "modelRateLimit": (429,),
    "modelOverloaded": (503, 529),
}
_CODE_OF_STATUS: Final = {status: code for code, statuses in _STATUSES.items() for status in statuses}
_CLIENT_ERRORS: Final = range(400, 500)
# What a message says, where the status leaves it open; the first that matches counts
_WORDINGS: Final = {
    "modelOutOfMoney": r"credit balance is too low|exceeded your current quota|spend(ing)? limit",
    "modelRequestTooLarge": r"request too large|tokens must be reduced|required for long context requests",
    "modelContextFull": r"prompt is too long|(maximum|exceeds? the( available)?) context|input token count",
    "modelUnknown": r"not a valid model id|invalid model: |model .{1,100} does not exist",
}
_OPEN_STATUSES: Final = (None, 200, 400, 413, 422, 429)
# Levels of errors within errors, and defects of a list that are read
_MAX_LEVELS: Final = 10
_MAX_DEFECTS: Final = 10
_SECONDS: Final = re.compile(r"(\d+(?:\.\d+)?)s")
# What OpenRouter says when its provider has said something better
_EMPTY_WORDS: Final = "Provider returned error"
# Providers quote whole requests, and a history keeps every message as long as the run is kept
_MAX_MESSAGE: Final = 600


@dataclass(frozen=True)
class ProviderFault:
    """An error as a provider stated it. ``words`` are its error code, type and the like, the most specific first."""

    message: str
    status: int | None = None
    words: Sequence[str] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    requestId: str | None = None

    @property
    def code(self) -> str:
        """Our code for it."""
        codes = [_CODE_OF_WORD[word] for word in self.words if word in _CODE_OF_WORD]
        if "modelOutOfMoney" in codes:
            return "modelOutOfMoney"
        if self.status in _OPEN_STATUSES and (worded := self._find_wording()):
            return worded
        specific = next((code for code in codes if code != "modelBadRequest"), None)
        if specific or self.status in _CODE_OF_STATUS:
            return specific or _CODE_OF_STATUS[self.status or 0]
        is_rejected = codes if self.status is None else self.status in _CLIENT_ERRORS
        return "modelBadRequest" if is_rejected else "modelUnavailable"

    def _find_wording(self) -> str | None:
        """The code by the message. Gemini calls a limit per minute an exceeded quota, and says when to retry."""
        code = next((code for code, text in _WORDINGS.items() if re.search(text, self.message, re.IGNORECASE)), None)
        is_passing = self.status == _STATUSES["modelRateLimit"][0] and parse_retry_after(self.headers) is not None
        return None if is_passing and code == "modelOutOfMoney" else code

    def to_error(self, site: str, model: str, **usage: Any) -> ModelError:
        """The ModelError; ``usage`` is what ``ResponseStream.usage`` returns."""
        error = build_error(self.code, site, model, self.message, **usage)
        should_retry = self.headers.get("x-should-retry")
        if should_retry in ("true", "false") and error.code not in ("modelOutOfMoney", "modelRequestTooLarge"):
            error.retryable = should_retry == "true"
        error.retryAfter = parse_retry_after(self.headers) if error.retryable else None
        details = {"status": self.status, "type": self.words[0] if self.words else None, "requestId": self.requestId}
        error.details = {k: v for k, v in details.items() if v is not None}
        return error


def build_error(code: str, site: str, model: str, message: str, **more: Any) -> ModelError:
    """The ModelError of a request to a provider or an endpoint (``site``)."""
    retryable, advice = CODES[code]
    text = f"{site} ({model}): {truncate(message, _MAX_MESSAGE)}; {advice}"
    return ModelError(code, text, retryable=retryable, **more)


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds to wait that the headers ask for, in milliseconds or in seconds."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    return None


# -- bodies ------------------------------------------------------------------------


def read_fault(error: Any) -> ProviderFault:
    """What an error of an SDK says: one with a status, or an ``{"error": …}`` in mid-stream without one."""
    facts = list(_read_body(error.body, _MAX_LEVELS))
    messages, words, pauses = ([text for k, text in facts if k == kind] for kind in _KINDS)
    messages = [text for text in messages if text != _EMPTY_WORDS] or messages
    response, status = getattr(error, "response", None), getattr(error, "status_code", None)
    headers = dict(response.headers) if response is not None else {}
    if pauses:
        headers = {"retry-after": pauses[0], **headers}
    code = getattr(error, "code", None)
    if status is None and isinstance(code, str) and code.isdigit():
        status = int(code)  # llama.cpp and others put it there
    return ProviderFault(
        message="; ".join(filter(None, messages)) or error.message,
        status=status,
        words=words,
        headers=headers,
        requestId=getattr(error, "request_id", None),
    )


_KINDS: Final = ("message", "word", "pause")
_NESTED: Final = ("error", "detail", "details", "message", "msg", "metadata", "raw")
_WORD_KEYS: Final = ("error_code", "reason", "code", "type", "status")


def _read_body(body: Any, levels: int) -> Iterator[tuple[str, str]]:
    """The facts of a body, as (kind, text), whatever its shape; those of servers that imitate OpenAI are many:

    {"error": {"message", "type", "code", "param"}}                      OpenAI, vLLM, Ollama, llama.cpp
    [{"error": {"code", "message", "status", "details": [{…}]}}]         Gemini: a list, the pause in details
    {"error": {"message", "code", "metadata": {"raw", …}}}               OpenRouter: the words of another provider
    {"detail": [{"type", "loc", "msg"}]}, {"detail": "…"}                FastAPI: Mistral, and many more
    {"message": {"detail": […]}, "type", …}, {"message": "{…}"}          Mistral, as an object and as JSON text
    {"error": "…"}, "…"                                                  LM Studio, Ollama, proxies
    """
    if levels == 0:
        return
    if isinstance(body, str):
        try:
            inner = json.loads(body) if body.lstrip()[:1] in ("{", "[") else None
        except (ValueError, RecursionError):
            inner = None
        yield from [("message", body)] if inner is None else _read_body(inner, levels - 1)
    elif isinstance(body, list):
        for item in body[:_MAX_DEFECTS]:
            yield from _read_body(item, levels - 1)
    elif isinstance(body, dict):
        for key, value in body.items():
            if key in _NESTED:
                yield from _read_body(value, levels - 1)
            elif key == "loc" and isinstance(value, list):  # the place of a defect
                yield "message", ".".join(map(str, value))
            elif key == "retryDelay" and (match := _SECONDS.fullmatch(str(value))):
                yield "pause", match[1]
            elif key in _WORD_KEYS and isinstance(value, str) and not value.isdigit():
                yield "word", value
