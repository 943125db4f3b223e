"""Settings of a Request and of a Tool, as closed, frozen models.

An unknown key is a typo: it is refused, and the hint names the most similar setting. A duration is written ``"30s"``,
``"5m"``, ``"24h"`` or as a number of seconds; the models hold seconds. Nothing here knows what a setting does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, Strict, ValidationError, model_validator

from acts.language.errors import MAX_PROBLEMS_REPORTED, Problem, suggest
from acts.language.values import Json, pointer

_DURATION: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)\s*")
_UNIT_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

# Calls in flight in a tree of runs, unless a Request says otherwise
DEFAULT_PARALLEL: Final = 100
# The server allows a run 2,000 activities in flight
MAX_PARALLEL: Final = 2_000
# Temporal shows names of task queues in columns and puts them into ids
MAX_QUEUE: Final = 200
# Temporal stores durations as 64-bit nanoseconds; ten years are beyond any use and well within that
MAX_SECONDS: Final = 10 * 365 * 86400.0
# How long a run waits for an overloaded model unless its Request says otherwise: most outages are shorter
DEFAULT_PATIENCE_SECONDS: Final = 3600.0
# A request in a batch costs this part of its price, at either provider
BATCH_PRICE: Final = 0.5
# Settings of ``Config`` about models: a child has those of its parent, unless it sets them itself
MODEL_SETTINGS: Final = (
    "model", "latentModel", "fallbackModels", "models", "patience", "effort", "temperature", "maxOutputTokens",
)  # fmt: skip
_COUNTS: Final = ("requests", "inputTokens", "outputTokens", "cachedTokens", "reasoningTokens")
# What the server allows (limit.maxIDLength)
MAX_WORKFLOW_ID: Final = 1_000
# Of the file for the results of a set: no tool takes it for its own, as make does a GNUmakefile
RESULTS_ENDINGS: Final = (".jsonl", ".ndjson")
# Of ``name=value``, and of all tags of a run: what the server takes in a keyword and in one value of keywords
MAX_TAG: Final = 255
MAX_TAGS_BYTES: Final = 1_500
# Of one wait: each is a timer
MAX_ESCALATIONS: Final = 5
# Temporal's timers count milliseconds
MIN_SECONDS: Final = 0.001


def parse_seconds(value: Json) -> float:
    """A duration in seconds, from ``"30s"``, ``"5m"``, ``"250ms"``, ``"7d"`` or a number; else raises ValueError."""
    amount: float | None = None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        amount = float(value)
    elif isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        amount = float(match.group(1)) * _UNIT_SECONDS[match.group(2)]
    if amount is None:
        raise ValueError('a duration is a number of seconds or a string like "30s", "5m", "24h"')
    if not MIN_SECONDS <= amount <= MAX_SECONDS:
        raise ValueError("a duration is at least one millisecond and at most ten years")
    return amount


Duration = Annotated[float, BeforeValidator(parse_seconds)]
# At most so many names, since each Call is compared with each. A list in JSON is a tuple in a frozen model
Strings = Annotated[tuple[str, ...], Strict(strict=False), Field(max_length=1_000)]


# … or one
Names = Annotated[Strings, BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


class _Closed(BaseModel, frozen=True, extra="forbid", strict=True):
    """Settings: frozen, named as on the wire (camelCase), without unknown keys."""


class Retry(_Closed):
    """How often a failing Activity is attempted, the first time included. ``initialInterval`` is in seconds."""

    maxAttempts: int = Field(default=3, ge=1, le=1000)
    initialInterval: Duration = 1.0
    backoff: float = Field(default=2.0, ge=1, le=100)
    nonRetryable: Strings = ()


def _check_queue(name: str) -> str:
    if not 0 < len(name) <= MAX_QUEUE or not name.isprintable() or name.startswith("/_sys/"):
        raise ValueError(f"a task queue is 1 to {MAX_QUEUE} printable characters, and not one of the server's own")
    return name


def _check_results(name: str) -> str:
    if not name.endswith(RESULTS_ENDINGS):
        raise ValueError("the results of a set are JSON Lines: the name ends in .jsonl or .ndjson")
    return name


def _check_tags(tags: dict[str, str]) -> dict[str, str]:
    """What a search attribute holds: ``key=value``, of which the server takes 255 characters and 2 kB in all."""
    items = [f"{key}={value}" for key, value in tags.items()]
    if any(not key or "=" in key or not text.isprintable() for key, text in zip(tags, items, strict=True)):
        raise ValueError('a tag is a name without "=" and a value, such as {"customer": "c-17"}, both printable')
    if max(map(len, items), default=0) > MAX_TAG or sum(len(text.encode()) + 4 for text in items) > MAX_TAGS_BYTES:
        raise ValueError(f"a tag has at most {MAX_TAG} characters with its name, all have {MAX_TAGS_BYTES:,} bytes")
    return tags


class Options(_Closed):
    """``_options`` of a Tool: where its Activity runs, and how long it may take, in seconds.

    ``timeout`` bounds one attempt; for a delegate it bounds the whole run, and only if it is set. ``queueTimeout``
    bounds the wait for a worker (None: a Call waits forever, since a backlog is no failure). ``heartbeat`` is the
    longest time between two heartbeats of an attempt. ``resolve`` says when the definition of a delegate is loaded.
    """

    taskQueue: Annotated[str, AfterValidator(_check_queue)] | None = None
    timeout: Duration = 300.0
    queueTimeout: Duration | None = None
    retry: Retry = Retry()
    heartbeat: Duration | None = None
    local: bool = False
    resolve: Literal["runtime", "upfront"] | None = None


class Escalation(_Closed):
    """``after`` so many seconds of waiting these decide, too."""

    after: Duration
    who: Annotated[Names, Field(min_length=1)]


class Person(_Closed):
    """``_person`` of a Tool: who answers its Calls (none: anybody), and until when, in seconds."""

    who: Names = ()
    timeout: Duration | None = None
    escalate: Annotated[tuple[Escalation, ...], Strict(strict=False), Field(max_length=MAX_ESCALATIONS)] = ()
    onTimeout: Literal["reject", "fail"] = "fail"

    @property
    def rule(self) -> Rule:
        return Rule(who=self.who, timeout=self.timeout, escalate=self.escalate, onTimeout=self.onTimeout)


class Rule(_Closed):
    """What a human confirms, and how: ``of`` so many of ``who`` (names and groups; none: anybody).

    ``when`` is a condition on ``†call``, the Call with its references resolved. None: as ``Approve`` has it for all.
    """

    calls: bool | Strings = False
    plan: bool = False
    scopes: bool = False
    when: Annotated[str, Field(max_length=1_000)] | None = None
    who: Names = ()
    of: int = Field(default=1, ge=1, le=20)
    selfApproval: bool | None = None
    timeout: Duration | None = None
    escalate: Annotated[tuple[Escalation, ...], Strict(strict=False), Field(max_length=MAX_ESCALATIONS)] = ()
    onTimeout: Literal["reject", "approve", "fail"] | None = None

    @model_validator(mode="after")
    def _check_subject(self) -> Rule:
        if self.when is not None and (self.plan or not (self.calls or self.scopes)):
            raise ValueError("when is a condition on a Call: it stands beside calls or scopes, and not beside plan")
        return self


def join_rules(rules: Sequence[Rule]) -> Rule | None:
    """One rule that asks for all that these ask for, and of which no deadline approves; None: nobody is in each."""
    if all(rule == rules[0] for rule in rules):
        return rules[0]
    named = [rule.who for rule in rules if rule.who]
    who = tuple(name for name in named[0] if all(name in names for names in named)) if named else ()
    if named and not who:
        return None
    return rules[0].model_copy(update={
        "who": who, "of": max(rule.of for rule in rules), "onTimeout": "reject", "escalate": (),
        "selfApproval": all(rule.selfApproval for rule in rules),
        "timeout": min((rule.timeout for rule in rules if rule.timeout is not None), default=None),
    })  # fmt: skip


class Approve(_Closed):
    """What a human confirms. ``plan`` None means: lazy plans only. ``timeout`` is in seconds.

    ``selfApproval`` False: who has edited a plan does not approve in its run. The first of ``rules`` that fits holds.
    """

    plan: bool | None = None
    calls: bool | Strings = False
    scopes: bool = False
    timeout: Duration | None = None
    onTimeout: Literal["reject", "approve", "fail"] = "reject"
    selfApproval: bool = True
    rules: Annotated[tuple[Rule, ...], Strict(strict=False), Field(max_length=50)] = ()

    @cached_property
    def all_rules(self) -> tuple[Rule, ...]:
        """The rules, complete; the last has the short forms: ``calls``, ``scopes`` and ``plan`` beside them."""
        last = Rule(calls=self.calls, scopes=self.scopes, plan=bool(self.plan))
        common = self.model_dump(include={"timeout", "onTimeout", "selfApproval"})
        return tuple(
            rule.model_copy(update={key: value for key, value in common.items() if getattr(rule, key) is None})
            for rule in (*self.rules, last)
        )

    @property
    def plan_rule(self) -> Rule:
        return next((rule for rule in self.all_rules if rule.plan), self.all_rules[-1])


class Budget(_Closed):
    """Limits of a run and everything below it. ``cost`` is in US dollars."""

    requests: int | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=0)
    cost: float | None = Field(default=None, ge=0)
    calls: int | None = Field(default=None, ge=0)
    depth: int | None = Field(default=None, ge=0)


class KeepBefore(_Closed):
    """``keep`` of ``resume``: the Calls before this one in plan order. ``before`` is a Call's id: ``3:charge``."""

    before: str = Field(min_length=1)


def _read_keep(value: Json) -> Json:
    if value == "completed" or isinstance(value, KeepBefore):
        return value
    if isinstance(value, dict) and set(value) == {"before"} and isinstance(value["before"], str) and value["before"]:
        return KeepBefore(before=value["before"])
    raise ValueError('keep is "completed", or {"before": "3:charge"} with the id of a call')


class Resume(_Closed):
    """The earlier run that a run continues from: its completed Calls are taken over.

    ``runId`` None: the latest run of the workflow id. ``ids``: whether a Call that had failed gets the ``_id`` that it
    had (``same``) or a new one; None: ``same`` for ``completed``, ``new`` for ``before``. ``only``: of a batch, run the
    instances that failed and no others; ``errors``: of a set, also the rows in which a failure took an error path.
    """

    workflowId: str = Field(min_length=1, max_length=MAX_WORKFLOW_ID)
    runId: str | None = Field(default=None, min_length=1, max_length=MAX_WORKFLOW_ID)
    keep: Annotated[Literal["completed"] | KeepBefore, BeforeValidator(_read_keep)] = "completed"
    ids: Literal["same", "new"] | None = None
    only: Literal["failed", "errors"] | None = None

    @property
    def keeps_ids(self) -> bool:
        return self.ids == "same" if self.ids is not None else self.keep == "completed"


class Undone(_Closed):
    """A Call that is undone: its id in its run, and its ``_id``."""

    call: str
    id: str


class Undoes(_Closed):
    """The run that a run undoes: what each of its Calls undoes, in order, and what cannot be undone, with the reason.

    The ``_id`` of a Call that undoes another follows from that of the other one: whoever undoes it, and however often.
    """

    workflowId: str = Field(min_length=1, max_length=MAX_WORKFLOW_ID)
    calls: Annotated[tuple[Undone, ...], Strict(strict=False)] = ()
    problems: Annotated[tuple[dict[str, Any], ...], Strict(strict=False)] = ()


class ToolSearch(_Closed):
    """Of more Tools than ``search`` an agent's planner sees the names, and asks for the schemas of those it needs."""

    search: int | None = Field(default=None, ge=0)


class ModelUse(_Closed):
    """``batch``: latent Calls wait in the providers' batches, for up to a day and at half the price."""

    batch: bool = False

    @property
    def price(self) -> float:
        """The part of its model's price that the request of a latent Call costs."""
        return BATCH_PRICE if self.batch else 1.0


class Config(_Closed):
    """``config`` of a Request. Every key is optional.

    ``latentModel`` answers latent Calls (default: ``model``). ``fallbackModels`` are tried in order when a model
    refuses, is gone, or is overloaded for longer than ``patience``, in seconds. ``results`` names the file that takes
    the results of a set. ``tags`` are words of a business by which runs are found and summed. Where work waits for
    workers, 1 is the first ``priority`` and 5 the last, and runs take turns: each for itself, or with all whose tag
    named by ``fairness`` has the same value. ``onFailure``: what completed is undone if the run fails. ``undoes`` is
    set by the engine, in a run that undoes another.
    """

    model: str | None = None
    latentModel: str | None = None
    fallbackModels: Strings = ()
    models: ModelUse = ModelUse()
    patience: Duration = DEFAULT_PATIENCE_SECONDS
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    temperature: float | None = Field(default=None, ge=0)
    maxOutputTokens: int | None = Field(default=None, ge=1)
    maxTicks: int = Field(default=50, ge=1)
    step: Literal["plan", "call"] = "plan"
    tools: ToolSearch = ToolSearch()
    approve: Approve = Approve()
    budget: Budget = Budget()
    maxParallel: int = Field(default=DEFAULT_PARALLEL, ge=1)
    instancesPerChild: int = Field(default=1, ge=1)
    missing: Literal["fail", "wait"] = "fail"
    resolve: Literal["runtime", "upfront"] = "runtime"
    stream: bool = True
    resume: Resume | None = None
    onFailure: Literal["undo"] | None = None
    undoes: Undoes | None = None
    results: Annotated[str, AfterValidator(_check_results)] | None = None
    tags: Annotated[dict[str, str], AfterValidator(_check_tags)] = {}
    priority: int | None = Field(default=None, ge=1, le=5)
    fairness: str | None = None

    @model_validator(mode="after")
    def _check_fairness(self) -> Config:
        if self.fairness is not None and self.fairness not in self.tags:
            raise ValueError(f"fairness is the name of one of the tags, which are: {', '.join(self.tags) or 'none'}")
        return self

    def capped(self, max_parallel: int | None, cost: float | None) -> dict[str, Any]:
        """The settings that are beyond these limits, as they are within them, in the form of a Request."""
        lower: dict[str, Any] = {}
        if max_parallel is not None and self.maxParallel > max_parallel:
            lower["maxParallel"] = max_parallel
        if cost is not None and (self.budget.cost is None or self.budget.cost > cost):
            lower["budget"] = {**self.budget.model_dump(exclude_none=True), "cost": cost}
        return lower

    @property
    def tag_keywords(self) -> list[str]:
        """``name=value`` of each tag, in order."""
        return sorted(f"{name}={value}" for name, value in self.tags.items())

    @property
    def latent_model(self) -> str | None:
        return self.latentModel or self.model

    @property
    def model_names(self) -> tuple[str, ...]:
        names = (self.model, self.latentModel, *self.fallbackModels)
        return tuple(dict.fromkeys(name for name in names if name))


@dataclass
class Usage:
    """Sums over the requests of a run, in US dollars; None as soon as the price of one request is unknown.

    Input tokens include cached ones, output tokens reasoning ones. ``schemaForms`` counts the requests whose schema was
    not sent as a strict one, by the form that was.
    """

    requests: int = 0
    inputTokens: int = 0
    outputTokens: int = 0
    cachedTokens: int = 0
    reasoningTokens: int = 0
    cost: float | None = 0.0
    schemaForms: dict[str, int] = field(default_factory=dict)

    def add(self, more: Mapping[str, Any] | None) -> None:
        """Add another sum in its JSON form; ignore anything else."""
        if not isinstance(more, dict):
            return
        for key in _COUNTS:
            if isinstance(count := more.get(key), int):
                setattr(self, key, getattr(self, key) + count)
        forms = more.get("schemaForms")
        for form, count in forms.items() if isinstance(forms, dict) else ():
            self.schemaForms[form] = self.schemaForms.get(form, 0) + count
        cost = more.get("cost", 0.0)
        self.cost = None if cost is None or self.cost is None else self.cost + float(cost)

    def to_json(self) -> dict[str, Any]:
        """``{requests, inputTokens, outputTokens, cachedTokens?, reasoningTokens?, schemaForms?, cost}``."""
        counts = {key: getattr(self, key) for key in _COUNTS}
        forms = {"schemaForms": dict(sorted(self.schemaForms.items()))} if self.schemaForms else {}
        cost = None if self.cost is None else round(self.cost, 9)
        return {
            **{key: count for key, count in counts.items() if count or key in _COUNTS[:3]}, **forms,
            "cost": int(cost) if cost is not None and cost == int(cost) else cost,
        }  # fmt: skip


def settings_problems(error: ValidationError, model: type[BaseModel], *at: str | int) -> list[Problem]:
    """The Problems of a ValidationError of ``model``; ``at`` is the place of the settings in the Request."""
    problems = []
    nested: dict[Any, type[BaseModel]] = {"retry": Retry, "approve": Approve, "budget": Budget, "resume": Resume,
              "rules": Rule, "escalate": Escalation, "tools": ToolSearch, "models": ModelUse}  # fmt: skip
    for item in error.errors(include_url=False, include_input=False)[:MAX_PROBLEMS_REPORTED]:
        # pydantic names the branch of a union in the location, which is no key of the settings
        place = [t for t in item["loc"] if not str(t).startswith(("function-", "literal[", "tuple["))]
        message, hint = item["msg"].removeprefix("Value error, "), None
        if item["type"] == "extra_forbidden":
            above = next((key for key in reversed(place[:-1]) if isinstance(key, str)), None)
            allowed = list(nested.get(above, model).model_fields)
            message = f'unknown setting "{place[-1]}"; known: {", ".join(allowed)}'
            hint = suggest(str(place[-1]), allowed)
        problems.append(Problem("invalidSetting", message, pointer(*at, *place), hint=hint))
    return problems


def settings_text(error: ValidationError) -> str:
    """The defects of settings in words, without their values: one may be a secret."""
    texts = []
    for item in error.errors(include_url=False, include_input=False)[:MAX_PROBLEMS_REPORTED]:
        place, message = ".".join(map(str, item["loc"])), item["msg"].removeprefix("Value error, ")
        message = "is unknown" if item["type"] == "extra_forbidden" else message
        texts.append(f"{place}: {message}" if place else message)
    return "; ".join(texts)
