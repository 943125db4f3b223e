"""What a run asks a worker about its surroundings: definitions, approvers, search attributes, and queues.

* ``acts.delegate`` loads the definition of a delegate, a saved Request; its failures are in ``acts/language/wire.py``:

      {"delegate": "<name | path | http(s) URL | acts:plan/NAME>", "sha256"?: "<expected hash, hex>"}
      → {"definition": {config?, context, schema?}, "sha256": "<hex of the bytes>",
         "source": "<path inside its folder, or the URL>"}

  There is no cache: reading a file again costs less than a tenth of a millisecond, and a model request follows.
* The approvers are those of the file that ``ACTS_APPROVERS`` names (its form: ``acts/tree/decisions.py``). A root asks
  once, and its history keeps the answer: those who are added or removed later decide about later runs.
* *Caps* are asked for where the worker has any: what they lower is lowered in the Request itself, in the run's history.
* To write a search attribute that the namespace lacks would fail the run's workflow task again and again.
* The server lists who polled a queue within the last five minutes. A worker whose slots are all busy for longer does
  not poll and is not listed; a worker that was killed still is.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import logging
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from temporalio import activity
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.common import RawValue, SearchAttributeKey
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from acts.activities.engine_activities import encode_result
from acts.activities.plan_folders import NamedPlan, find_plan
from acts.delegates.definitions import load_error, read_definition, read_file
from acts.delegates.sources import PORTS, SHIPPED, DelegateSources, quote
from acts.language import wire
from acts.language.errors import SettingsError
from acts.language.strict_json import read_json
from acts.telemetry import metrics
from acts.telemetry.observation import RPC_TIMEOUT, read_pollers
from acts.tree.child_requests import named_delegates
from acts.tree.decisions import Approver, read_approvers
from acts.tree.search_attributes import ALL_ATTRIBUTES, COST, TAGS, TYPES, WAITING_SINCE

logger = logging.getLogger(__name__)
VARIABLE: Final = "ACTS_APPROVERS"
# Attributes that are missing may be registered while the worker runs
_RECHECK_SECONDS: Final = 60.0


def approvers_from_environment() -> tuple[Approver, ...]:
    """The approvers; none where the variable is not set. Raises SettingsError: the file cannot be used."""
    setting = os.environ.get(VARIABLE)
    try:
        return read_approvers(read_json(Path(setting).read_bytes(), unique_keys=True)) if setting else ()
    except (OSError, ValueError, SettingsError) as error:
        raise SettingsError(f"{VARIABLE} names {setting}, which is not a usable JSON file: {error}") from None


@activity.defn(name=wire.APPROVERS)
async def look_up_approvers() -> list[dict[str, Any]]:
    """The approvers, as records; retried until the file can be read."""
    try:
        return [approver.to_json() for approver in approvers_from_environment()]
    except SettingsError as error:
        raise ApplicationError(str(error), type="ApproversUnreadable") from None


# By namespace: whether it has all attributes, and the time until which that counts
_answers: Final[dict[str, tuple[int, float]]] = {}


def value_type(name: str) -> IndexedValueType.ValueType:
    """The server's number for the type of a search attribute."""
    words = {"Keyword": "KEYWORD", "Int": "INT", "KeywordList": "KEYWORD_LIST", "Double": "DOUBLE"}
    words |= {"Datetime": "DATETIME"}
    return IndexedValueType.Value(f"INDEXED_VALUE_TYPE_{words[TYPES[name]]}")


async def registered_types(client: Client) -> dict[str, IndexedValueType.ValueType]:
    """The custom search attributes of the client's namespace, by name. Raises RPCError: the server does not say."""
    request = ListSearchAttributesRequest(namespace=client.namespace)
    answer = await client.operator_service.list_search_attributes(request, timeout=RPC_TIMEOUT)
    return dict(answer.custom_attributes)


@activity.defn(name=wire.SEARCH_ATTRIBUTES)
async def check_search_attributes() -> int:
    """2: the namespace has all of them, with the right types; 1: all but ``ActsWaitingSince``, which came later.

    0 for others, and when the server does not say.
    """
    client = activity.client()
    level, until = _answers.get(client.namespace, (0, 0.0))
    if level < ALL_ATTRIBUTES and time.monotonic() >= until:
        try:
            types = await registered_types(client)
        except RPCError:
            types = {}
        wrong = {name for name in TYPES if types.get(name) != value_type(name)}
        level = 0 if wrong - {WAITING_SINCE} else ALL_ATTRIBUTES - len(wrong)
        _answers[client.namespace] = level, time.monotonic() + _RECHECK_SECONDS
    return level


def read_day_costs(text: str) -> dict[str, float]:
    """Dollars by the name of a tag, "" for all runs, of ``500, customer=20``. Raises ValueError."""
    parts = [part.rpartition("=") for part in filter(None, map(str.strip, text.split(",")))]
    return {name.strip(): float(amount) for name, _, amount in parts}


def check_day_costs(text: str) -> str:
    try:
        _ = read_day_costs(text)
    except ValueError:
        raise ValueError("it is US dollars, or TAG=DOLLARS, separated by commas: 500, customer=20") from None
    return text


DAY_SHARES: Final = (0.8, 1.0)


class Caps:
    """What the operator allows a Request: Calls in flight, and US dollars for models, of a run and of a day.

    A day is one of UTC, and a run counts on the day on which it began, with what the server lists as its cost.
    """

    def __init__(self, max_parallel: int | None, max_cost: float | None, day_costs: str) -> None:
        self._max_parallel, self._max_cost, self._day_costs = max_parallel, max_cost, read_day_costs(day_costs)
        self._warned: set[tuple[str, str, float]] = set()
        for name in self._day_costs:  # from the first scrape on, as an alert sees no event that makes its series
            for share in DAY_SHARES:
                metrics.record(metrics.DAY_COST, 0, limit=name or "all", share=f"{share:.0%}")

    @activity.defn(name=wire.CAPS)
    async def look_up(self, request: dict[str, Any]) -> dict[str, Any]:
        """``{"tags"?: [name=value]}`` of a run with a model → ``{"maxParallel"?, "cost"?, "spent"?: reason}``"""
        costs = [] if self._max_cost is None else [self._max_cost]
        answer: dict[str, Any] = {} if self._max_parallel is None else {"maxParallel": self._max_parallel}
        tags: list[str] = request.get("tags", [])
        for name, limit in self._day_costs.items() if "tags" in request else ():
            for tag in [""] if not name else [tag for tag in tags if tag.startswith(f"{name}=")]:
                spent = await self._spent_today(tag)
                self._warn(name, tag, spent, limit)
                costs.append(max(0.0, limit - spent))
                if spent >= limit:
                    what = f"of runs with the tag {tag}" if tag else "of all runs"
                    answer["spent"] = (
                        f"the {limit:g} USD that models may cost in a day {what} are spent (ACTS_DAY_COST)"
                    )
        return answer | ({"cost": min(costs)} if costs else {})

    async def _spent_today(self, tag: str) -> float:
        day = datetime.now(UTC).strftime("%Y-%m-%dT00:00:00Z")
        quoted = tag.replace("\\", "\\\\").replace("'", "\\'")
        query = f"StartTime >= '{day}' AND {COST} > 0" + (f" AND {TAGS} = '{quoted}'" if tag else "")
        key = SearchAttributeKey.for_float(COST)
        runs = activity.client().list_workflows(query, page_size=1_000)
        return sum([run.typed_search_attributes.get(key) or 0.0 async for run in runs])

    def _warn(self, name: str, tag: str, spent: float, limit: float) -> None:
        """Count and log, once a day, that a value has reached four fifths of its limit, or all of it."""
        day = datetime.now(UTC).strftime("%Y-%m-%d")
        for share in DAY_SHARES:
            if spent >= share * limit and (day, tag, share) not in self._warned:
                self._warned = {entry for entry in self._warned if entry[0] == day} | {(day, tag, share)}
                metrics.record(metrics.DAY_COST, limit=name or "all", share=f"{share:.0%}")
                text = "models have cost %.2f USD today %s, %.0f %% of ACTS_DAY_COST"
                logger.warning(text, spent, f"for {tag}" if tag else "in all", 100 * spent / limit if limit else 100)


@activity.defn(name=wire.QUEUES)
async def check_queues(request: dict[str, Any]) -> dict[str, bool]:
    """``{"queues": [names]}`` → ``{name: has workers}``; a queue that the server says nothing of is left out."""
    queues: list[str] = request["queues"]
    reads = (read_pollers(activity.client(), queue) for queue in queues)
    answers = await asyncio.gather(*reads, return_exceptions=True)
    if fault := next((a for a in answers if isinstance(a, BaseException) and not isinstance(a, RPCError)), None):
        raise fault
    return {queue: bool(a) for queue, a in zip(queues, answers, strict=True) if not isinstance(a, BaseException)}


# Definitions that one may name, with those that they name: people approve all of them
MAX_USES: Final = 100
# At least two letters: one is the drive of a Windows path, and no scheme has one
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")


class Loader:
    """Loads from the sources that the worker's settings name, and its ``plans``.

    ``fetch_options`` are for tests (see ``web.Fetcher``).
    """

    def __init__(
        self, sources: DelegateSources, plans: Mapping[str, NamedPlan] | None = None, **fetch_options: Any
    ) -> None:
        self._sources, self._plans, self._fetch_options = sources, plans or {}, fetch_options

    @activity.defn(name=wire.LOAD_DELEGATE)
    async def load_delegate(self, request: dict[str, Any]) -> RawValue:
        """The activity."""
        result = await self.load(request)
        text = f'what is to be recorded of the delegate "{result["source"]}" has'
        return encode_result(result, lambda size: load_error(wire.DELEGATE_TOO_LARGE, f"{text} {size}"))

    async def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """See the top of the file. Raises ApplicationError: one of the ``Delegate…`` types."""
        name, expected = request["delegate"], request.get("sha256")  # "" where it could not be loaded: nothing has it
        if (plan := name.removeprefix(f"{wire.INNER_PLAN}/")) != name:
            named = find_plan(plan, self._plans)
            data, sha256, source = None, named.sha256, named.file.name
        else:
            data, source = await self._read(name)
            sha256 = hashlib.sha256(data).hexdigest()
        if expected is not None and str(expected).lower() != sha256:
            text = f'the delegate "{source}" has changed: sha256 {quote(expected)} was expected, and it is {sha256}'
            raise load_error(wire.DELEGATE_CHANGED, text)
        definition = named.request if data is None else await asyncio.to_thread(read_definition, data, source)
        result = {"definition": definition, "sha256": sha256, "source": source}
        return {**result, "uses": await self._uses(definition)} if request.get("uses") else result

    async def _read(self, name: str) -> tuple[bytes, str]:
        scheme = _SCHEME.match(name)
        if scheme is None:
            return await asyncio.to_thread(read_file, (*self._sources.folders, SHIPPED), name)
        if scheme[1].lower() not in PORTS:
            text = f"the delegate {quote(name)} has the scheme {quote(scheme[1])}; allowed: http, https"
            raise load_error(wire.DELEGATE_REFUSED, f"{text}, or a name or path without any")
        # The HTTP part is imported when a URL is first loaded: it takes a tenth of a second
        web = await asyncio.to_thread(importlib.import_module, "acts.delegates.web")
        return await web.Fetcher(self._sources, **self._fetch_options).fetch(name), name

    async def _uses(self, definition: dict[str, Any]) -> dict[str, str]:
        """The SHA-256 of each definition that this one names, and that those name; "" where it cannot be loaded."""
        pins: dict[str, str] = {}
        names = list(named_delegates(definition))
        while names:
            if (name := names.pop(0)) in pins:
                continue
            if len(pins) == MAX_USES:
                raise load_error(wire.DELEGATE_TOO_LARGE, f"it names more than {MAX_USES} others, with what they name")
            pins[name] = ""
            with suppress(ApplicationError):
                loaded = await self.load({"delegate": name})
                pins[name] = loaded["sha256"]
                names += named_delegates(loaded["definition"])
        return pins
