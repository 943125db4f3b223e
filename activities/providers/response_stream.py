"""A streamed answer of any provider: its text, JSON, tokens and cost, and the reason it ended.

The adapters feed it from their providers' events. It knows neither their SDKs nor their requests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from activities.providers.answer_parser import AnswerParser
from activities.providers.interface import CallReceiver, ModelError, ModelRequest, ModelResponse, TokenCounts
from activities.providers.prices import cost_of
from activities.providers.provider_errors import build_error
from activities.providers.provider_keywords import Dialect, compact_json
from activities.providers.schema_bridge import Wire, to_wire
from acts.language.values import Json

ONLY_JSON: Final = "Answer with one JSON value and nothing else. It must fit this JSON Schema:\n"


@dataclass
class ResponseStream:
    """One answer. ``finish_reason`` is the provider's word; None: the stream has not ended, or broke off.

    ``is_accepted``: the provider has taken the request, so a failure from now on breaks off an answer.
    """

    provider: Dialect
    request: ModelRequest
    on_call: CallReceiver | None
    strict: bool
    tokens: TokenCounts = field(default_factory=TokenCounts)
    model: str | None = None
    requestId: str | None = None
    finish_reason: str | None = None
    refusal: str | None = None
    is_accepted: bool = False

    def __post_init__(self) -> None:
        self.wire: Wire = to_wire(self.request.schema, self.provider if self.strict else "unenforced")
        self._calls: list[Json] = []
        self._parser = AnswerParser(self._receive_call if self.on_call else None)

    @property
    def instructions(self) -> str | None:
        """The schema in words, for a request in which no strict schema is sent."""
        return None if self.strict else self.schema_in_words

    @property
    def schema_in_words(self) -> str:
        """The schema as it is sent, for a model that does not see it otherwise."""
        return ONLY_JSON + compact_json(self.wire.schema)

    @property
    def text(self) -> str:
        """The text that has arrived."""
        return self._parser.text

    def add_text(self, text: str) -> None:
        """Add a piece of the answer."""
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
        actual = cost_of(self.provider, self.model or self.request.model, self.tokens)
        return cost_of(self.provider, self.request.model, self.tokens) if actual is None else actual

    def usage(self) -> dict[str, Any]:
        """The fields of a ModelError about the answer: tokens, cost and text."""
        is_known = self.tokens != TokenCounts()
        return {"tokens": self.tokens if is_known else None, "cost": self.cost if is_known else None, "text": self.text}

    def error(self, code: str, message: str) -> ModelError:
        """The error of an answer that ended badly."""
        details = {"requestId": self.requestId} if self.requestId else None
        return build_error(code, self.provider, self.request.model, message, details=details, **self.usage())

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
            raise self.error("modelNotJson", f"its answer cannot be read: {error}") from None
        return ModelResponse(
            text=self.text,
            value=value,
            tokens=self.tokens,
            cost=self.cost,
            requestId=self.requestId,
            model=self.model,
            strict=self.strict,
        )


def token_count(value: Any) -> int:
    """A number of tokens, as far as a server states it."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
