"""The activities of a set. Each takes and returns one JSON value, and does its work in a thread beside a heartbeat.

    acts.surveySet      {"source", "id"?, "past"?} → {total, dialect, pages, repeated, skipped?, takenOver?, leftOut?}
    acts.readPage       {"source", "id"?, "dialect", "page", "repeated", "skipped"?}
                        → {"rows": [[number, id, data]], "bad": [[number, line, code, message]]}
    acts.createResults  {"file", "run"} → {}
    acts.appendResults  {"file", "run", "lines": [[number, line]]} → {"written": count}
    acts.closePage      what acts.readPage takes, and {"run", "file" or "ended": [id], "line"?: {status, code, message}}
                        → {"completed", "failed", "failures": [{id, status, errors}], "instances"?}

Beside that, each has ``root`` and ``token``: the run that is told while a file cannot be read or written. That is
waited for between two attempts, so it takes no slot of a worker; all other failures are final. ``past`` is
``{run, results: [{file, run} or {workflowId, runId}], only?}``: the earlier run that a run resumes, and the results
files, or the histories of runs without one, with what its rows have come to.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from contextlib import ExitStack, asynccontextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.heartbeat import heartbeat
from activities.json_result import ResultTooLarge, encode_result
from acts.language.strict_json import write_json
from acts.language.wire import (
    APPEND_RESULTS,
    BAD_ROW,
    CLOSE_PAGE,
    CREATE_RESULTS,
    DUPLICATE_ID,
    FILE_WAIT,
    NON_RETRYABLE_TYPES,
    READ_PAGE,
    RESUME_REFUSED,
    SET_CHANGED,
    SET_TOO_LARGE,
    SET_UNAVAILABLE,
    SURVEY_SET,
)
from acts.tree.instance_payload import TYPE_KEY
from acts.tree.set_records import FileWait, SetPage
from acts.tree.set_rows import bad_row_line, count_lines, failed_line
from sets import results_file
from sets.past_results import PastFile, PastSpool
from sets.row_ids import PastRows, RowSelection
from sets.row_reader import Dialect, row_id
from sets.set_errors import SetError, quote
from sets.set_files import open_set
from sets.survey import read_page, survey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from acts.tree.past_run import PastRow
    from sets.row_reader import Row
    from sets.set_files import Download
    from sets.set_sources import SetSources

    ReadRows = Callable[[str, str], AsyncIterator[tuple[PastRow, ...]]]
    Prepare = Callable[[dict[str, Any]], AbstractAsyncContextManager[dict[str, Any]]]

# Seconds until the next attempt, as the retry policy of the workflows has them
_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 30.0


class SetActivities:
    """The activities, with the sources that the worker's settings name. ``download`` writes what is at a URL.

    ``read_rows`` reads what the rows of a run without a results file came to, by its workflow id and run id.
    """

    def __init__(self, sources: SetSources, download: Download, read_rows: ReadRows) -> None:
        self._sources, self._download, self._read_rows = sources, download, read_rows

    def all(self) -> list[Callable[..., Any]]:
        """The activities to register."""
        work = {
            READ_PAGE: self.read_page,
            CREATE_RESULTS: self.create_results, APPEND_RESULTS: self.append_results, CLOSE_PAGE: self.close_page,
        }  # fmt: skip
        others = [_activity(name, function) for name, function in work.items()]
        return [_activity(SURVEY_SET, self.survey, self.add_rows), *others]

    @asynccontextmanager
    async def add_rows(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """The request of a survey, with the rows of earlier runs that have no results file as a ``spool`` each."""
        past = request.get("past")
        if past is None:
            yield request
            return
        with ExitStack() as stack:
            results: list[dict[str, Any]] = []
            for item in past["results"]:
                results.append(item)
                if "file" not in item:
                    spool = PastSpool(stack.enter_context(tempfile.TemporaryFile()))
                    async for rows in self._read_rows(item["workflowId"], item["runId"]):
                        await asyncio.to_thread(spool.write, rows)
                    results[-1] = {**item, "spool": spool}
            yield {**request, "past": {**past, "results": results}}

    def survey(self, request: dict[str, Any]) -> dict[str, Any]:
        """How many rows a set has, and where its pages begin."""
        with open_set(request["source"], self._sources, self._download, is_fresh=True) as opened:
            before = _mark(opened.stream)
            past = self._past_rows(request.get("past"))
            found = survey(opened.stream, opened.name, opened.size, request.get("id"), lambda: None, past)
            if not opened.is_copy and _mark(opened.stream) != before:
                raise SetError(SET_UNAVAILABLE, f"{opened.name} was written to while its rows were counted")
            return found.to_json()

    def _past_rows(self, past: dict[str, Any] | None) -> PastRows | None:
        if past is None:
            return None
        sources = [
            item.get("spool") or PastFile(results_file.find_results(self._sources.results, item["file"]), item["run"])
            for item in past["results"]
        ]
        return PastRows(sources, RowSelection(past["run"], only_failed=past.get("only") == "failed"))

    def read_page(self, request: dict[str, Any]) -> dict[str, Any]:
        """The rows of a page. A copy of another place that has become stale is made again, once."""
        try:
            return self._read_page(request, is_fresh=False)
        except SetError as error:
            if error.type != SET_CHANGED:
                raise
            return self._read_page(request, is_fresh=True)

    def _read_page(self, request: dict[str, Any], *, is_fresh: bool) -> dict[str, Any]:
        page = SetPage.from_json(request["page"])
        with open_set(request["source"], self._sources, self._download, is_fresh=is_fresh) as opened:
            opened.stream.seek(page.offset)
            rows = read_page(opened.stream, Dialect.from_json(request["dialect"]), page, opened.name)
        skipped = frozenset(request.get("skipped", ()))
        numbered = [(number, row) for number, row in enumerate(rows, page.row) if number not in skipped]
        return _sort_rows(numbered, request.get("id"), frozenset(request["repeated"]))

    def create_results(self, request: dict[str, Any]) -> dict[str, Any]:
        """Create the results file of a run."""
        results_file.create(results_file.find_results(self._sources.results, request["file"]), request["run"])
        return {}

    def append_results(self, request: dict[str, Any]) -> dict[str, Any]:
        """Append the lines of rows that have none yet."""
        file = results_file.find_results(self._sources.results, request["file"])
        lines = ((number, write_json(line)) for number, line in request["lines"])
        return {"written": results_file.append(file, request["run"], lines)}

    def close_page(self, request: dict[str, Any]) -> dict[str, Any]:
        """Give each row of a page that has no line one with ``line``, and count the lines of all.

        Without ``line`` nothing is written. Without a results file, ``ended`` are the ids of the rows that the Batch
        has reported, and the others are counted.
        """
        line = request.get("line")
        missing = [] if line is None else _lines_of_page(request, line, self.read_page(request))
        if "file" not in request:
            ended = frozenset(request["ended"])
            lines = [item for _, item in missing if item["id"] not in ended]
            instances = {item["id"]: {k: v for k, v in item.items() if k != "id"} for item in lines}
            return {**count_lines(lines), "instances": instances}
        file, page = results_file.find_results(self._sources.results, request["file"]), request["page"]
        if missing:
            results_file.append(file, request["run"], ((number, write_json(item)) for number, item in missing))
        last = page["row"] + page["rows"] - 1
        return count_lines(results_file.read_rows(file, request["run"], page["row"], last))


def _lines_of_page(request: dict[str, Any], line: dict[str, Any], read: dict[str, Any]) -> list[tuple[int, Any]]:
    """A line for each row of a page: its number, and what it says."""
    bad = [(row[0], bad_row_line(request["source"], row)) for row in read["bad"]]
    return bad + [
        (number, failed_line(id_, line["code"], line["message"], line["status"])) for number, id_, _ in read["rows"]
    ]


def _mark(stream: Any) -> tuple[int, int]:
    status = os.fstat(stream.fileno())
    return status.st_size, status.st_mtime_ns


def _sort_rows(rows: list[tuple[int, Row]], id_field: str | None, repeated: frozenset[int]) -> dict[str, Any]:
    """The rows that run, and those that cannot."""
    good: list[list[Any]] = []
    bad: list[list[Any]] = []
    for number, row in rows:
        if row.data is None:
            bad.append([number, row.line, row.code, row.message])
            continue
        id_, reason = row_id(row.data, id_field, number)
        if id_ is None:
            bad.append([number, row.line, BAD_ROW, reason])
        elif number in repeated:
            bad.append([number, row.line, DUPLICATE_ID, f'an earlier row, which runs, has its id, "{id_}"'])
        else:
            good.append([number, id_, row.data])
    return {"rows": good, "bad": bad}


# -- as activities ------------------------------------------------------------------------


def _activity(
    name: str, work: Callable[[dict[str, Any]], dict[str, Any]], prepare: Prepare = nullcontext
) -> Callable[..., Any]:
    @activity.defn(name=name)
    async def run(request: dict[str, Any]) -> RawValue:
        async with heartbeat():
            try:
                async with prepare(request) as complete:
                    result = await asyncio.to_thread(partial(encode_work, work, complete))
            except SetError as error:
                raise await _failure(error, request) from error
        if activity.info().attempt > 1:
            await _report(request, FileWait(workflowId=_own_id(), token=request["token"]))
        return result

    return run


def encode_work(work: Callable[[dict[str, Any]], dict[str, Any]], request: dict[str, Any]) -> RawValue:
    """Do the work; returns its result as one payload.

    Raises:
        SetError: it failed, or what it returns is too large to be recorded.
    """
    try:
        return encode_result(work(request))
    except ResultTooLarge as error:
        text = f"what is to be recorded of {quote(request.get('source'))} has {error}; split it into several files"
        raise SetError(SET_TOO_LARGE, text) from error


async def _failure(error: SetError, request: dict[str, Any]) -> ApplicationError:
    """The failure of an attempt; the root is told of one that is followed by another."""
    if error.type in (*NON_RETRYABLE_TYPES, RESUME_REFUSED):
        return ApplicationError(error.message, type=error.type, non_retryable=True)
    seconds = min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** min(activity.info().attempt - 1, 10))
    next_try = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(timespec="seconds")
    record = FileWait(workflowId=_own_id(), token=request["token"], reason=error.message, nextTry=next_try)
    await _report(request, record)
    return ApplicationError(error.message, type=error.type, next_retry_delay=timedelta(seconds=seconds))


def _own_id() -> str:
    return activity.info().workflow_id or ""


async def _report(request: dict[str, Any], record: FileWait) -> None:
    """Tell the root; a report that is lost costs nothing."""
    payload = Payload(
        metadata={"encoding": b"json/plain", TYPE_KEY: FileWait.__name__.encode()}, data=write_json(record.to_json())
    )
    with contextlib.suppress(RPCError):
        await activity.client().get_workflow_handle(request["root"]).signal(FILE_WAIT, RawValue(payload))
