"""A streamed answer of any provider: its text, JSON, tokens and cost, and the reason it ended.

The adapters feed it from their providers' events. It knows neither their SDKs nor their requests.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from activities.providers.answer_parser import AnswerParser
from activities.providers.endpoints import Endpoint
from activities.providers.interface import CallReceiver, ModelError, ModelRequest, ModelResponse, TokenCounts
from activities.providers.prices import cost_of
from activities.providers.provider_errors import build_error
from activities.providers.provider_keywords import compact_json
from activities.providers.schema_bridge import Wire
from activities.providers.schema_ladder import ONLY_JSON, SentSchema
from acts.language.values import Json
from acts.language.wire import MAX_PAYLOAD_BYTES, RESULT_TOO_LARGE
from acts.planner.request_estimate import bytes_per_token

# Two megabytes can be recorded; the rest is room for spaces and escapes. A longer answer is not read to its end
MAX_ANSWER_CHARACTERS: Final = 4 * MAX_PAYLOAD_BYTES
# Characters of it that an error has
_SHOWN: Final = 10_000
_TOOL_CALLS: Final = ("tool_use", "tool_calls", "function_call")


@dataclass
class ResponseStream:
    """One answer. ``finish_reason`` is the provider's word; None: the stream has not ended, or broke off.

    ``is_accepted``: the provider has taken the request, so a failure from now on breaks off an answer. ``notes`` say
    what of the request differs from the settings. ``longest`` is the longest answer of the model in tokens.
    """

    provider: str
    request: ModelRequest
    on_call: CallReceiver | None
    sent: SentSchema
    notes: tuple[str, ...] = ()
    longest: int | None = None
    endpoint: Endpoint | None = None
    tokens: TokenCounts = field(default_factory=TokenCounts)
    model: str | None = None
    requestId: str | None = None
    finish_reason: str | None = None
    refusal: str | None = None
    is_accepted: bool = False

    def __post_init__(self) -> None:
        self._bytes = 0
        self.wire: Wire = self.sent.wire
        self._calls: list[Json] = []
        self._parser = AnswerParser(self._receive_call if self.on_call else None)

    @property
    def site(self) -> str:
        """The provider or the endpoint, as errors name it."""
        return self.provider if self.endpoint is None else self.endpoint.name

    @property
    def instructions(self) -> str | None:
        """What the model must read of the schema in words, because no enforced schema says it."""
        return self.sent.words or None

    @property
    def schema_in_words(self) -> str:
        """The schema as it is sent, for a model that does not see it otherwise."""
        return ONLY_JSON + compact_json(self.wire.schema)

    @property
    def text(self) -> str:
        """The text that has arrived."""
        return self._parser.text

    def begin(self) -> None:
        """The answer begins: the provider has read the input."""
        if self.request.on_begin is not None:
            self.request.on_begin()

    def add_text(self, text: str) -> None:
        """Add a piece of the answer.

        Raises:
            ModelError: it has become too long to be of any use.
        """
        self.begin()
        self._bytes += len(text)
        if self._bytes > MAX_ANSWER_CHARACTERS:
            message = (
                f"{self.site} ({self.request.model}): the answer has more than {MAX_ANSWER_CHARACTERS:,} characters"
            )
            raise ModelError(RESULT_TOO_LARGE, message, retryable=False, **self.usage() | {"text": self.text[:_SHOWN]})
        self._parser.feed(text)

    def replace_text(self, text: str) -> None:
        """Set the whole answer, where some of the text that was added turns out to be none of it."""
        if text != self.text:
            self._parser = AnswerParser()
            self._parser.feed(text)
            self._calls = []

    def add_refusal(self, text: str) -> None:
        """Add a piece of a refusal."""
        self.refusal = (self.refusal or "") + text

    def _receive_call(self, index: int, call: Json) -> None:
        (call,) = self.wire.from_wire({"calls": [call]})["calls"]
        self._calls.append(call)
        if self.on_call is not None:
            self.on_call(index, call)

    def _read_value(self) -> Json:
        """The answer in the form of the request's schema. The Calls were translated on arrival."""
        value = self._parser.value()
        if not self._calls or not self._parser.is_streamed:
            return self.wire.from_wire(value)
        return {**self.wire.from_wire({**value, "calls": []}), "calls": self._calls}

    @property
    def cost(self) -> float | None:
        """US dollars, or None where the price is unknown. A server may answer with another name for the model."""
        lists = (self.provider,) if self.endpoint is None else self.endpoint.price_lists
        actual = cost_of(lists, self.model or self.request.model, self.tokens)
        return cost_of(lists, self.request.model, self.tokens) if actual is None else actual

    def usage(self) -> dict[str, Any]:
        """The fields of a ModelError about the answer: tokens, cost and text."""
        self._estimate_tokens()
        is_known = self.tokens != TokenCounts()
        return {"tokens": self.tokens if is_known else None, "cost": self.cost if is_known else None, "text": self.text}

    def _estimate_tokens(self) -> None:
        """Where the provider stated no usage, or the answer broke off before it did: that of what was sent and came."""
        if not self.text or (self.finish_reason is not None and self.tokens != TokenCounts()):
            return
        per_token = bytes_per_token(f"{self.provider}:")
        written = round(len(self.text.encode(errors="replace")) / per_token)
        if self.tokens == TokenCounts():
            blocks = [*self.request.system, *(b for turn in self.request.all_turns for b in turn.blocks)]
            read = round(sum(len(b.text.encode(errors="replace")) for b in blocks) / per_token)
            self.tokens = TokenCounts(inputTokens=max(1, read), outputTokens=max(1, written))
            self.notes = (
                *self.notes,
                f"{self.request.model} stated no usage: it is estimated by the length of the texts",
            )
        elif self.tokens.outputTokens <= 1 < written:  # what a provider states at the beginning
            self.tokens = replace(self.tokens, outputTokens=written)

    def truncated(self, message: str) -> ModelError:
        """The error of an answer that reached its cap."""
        error = self.error("modelTruncated", message)
        error.cap, error.longest = self.request.maxOutputTokens, self.longest
        return error

    def error(self, code: str, message: str) -> ModelError:
        """The error of an answer that ended badly."""
        details = {"requestId": self.requestId} if self.requestId else None
        error = build_error(code, self.site, self.request.model, message, details=details, **self.usage())
        error.finishReason = self.finish_reason
        return error

    def response(self) -> ModelResponse:
        """The complete answer.

        Raises:
            ModelError: it is a refusal, broke off, or has no JSON.
        """
        if self.refusal is not None:
            raise self.error("modelRefused", self.refusal or "it refused")
        if self.finish_reason is None:
            raise self.error("modelCut", "the stream ended before the answer did")
        try:
            value = self._read_value()
        except ValueError as error:
            reason = "it called a tool of the provider" if self.finish_reason in _TOOL_CALLS else error
            raise self.error("modelNotJson", f"its answer cannot be read: {reason}") from None
        self._estimate_tokens()
        return ModelResponse(
            text=self.text,
            value=value,
            tokens=self.tokens,
            cost=self.cost,
            requestId=self.requestId,
            model=self.model,
            form=self.sent.form,
            notes=self.notes,
            finishReason=self.finish_reason,
        )


def token_count(value: Any) -> int:
    """A number of tokens, as far as a server states it."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
