"""The one record with which a run asks the model activity: for a Solution, or for the result of a latent Call."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from acts.language.config import DEFAULT_PATIENCE_SECONDS
from acts.language.values import Json


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class QuestionSource(_Record):
    """The run that has the context: its first ``upto`` messages are shown."""

    workflowId: str
    runId: str = ""
    upto: int = 0


class Reserved(_Record):
    """What all requests of a question may use; None: no limit. ``cost`` is in US dollars."""

    tokens: float | None = None
    cost: float | None = None


class ModelQuestion(_Record):
    """What a model is asked, and within what.

    ``priced``: the budget limits the cost, so a model without a price is refused. ``mayRepair``: further requests may
    be made, within what is ``reserved`` for all. ``answersLeft``: so many unusable answers end the run (None: the most
    that any may have). ``streams``: Calls are reported while the model writes. ``patience`` is in seconds. ``root`` is
    told of waits. A Solution has its ``tick``; a latent Call its ``tool``, ``call``, outcome ``paths``, ``scoped``.
    """

    ask: Literal["solution", "output"]
    model: str
    source: QuestionSource
    fallbackModels: tuple[str, ...] = ()
    patience: float = DEFAULT_PATIENCE_SECONDS
    effort: str | None = None
    temperature: float | None = None
    maxOutputTokens: int | None = None
    priced: bool = False
    mayRepair: bool = True
    answersLeft: int | None = None
    reserved: Reserved = Reserved()
    token: str = ""
    root: str | None = None
    tick: int = 1
    streams: bool = False
    tool: str = ""
    call: dict[str, Any] = {}
    paths: tuple[str, ...] = ()
    scoped: Json = None

    @property
    def is_planning(self) -> bool:
        """True where a Solution is asked for."""
        return self.ask == "solution"
