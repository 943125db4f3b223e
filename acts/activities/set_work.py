"""The activities of a set. Each takes and returns one JSON value, and does its work in a thread.

    acts.surveySet      {"source", "id"?, "past"?} → ``Survey``
    acts.readPage       ``PageReading`` → {"rows": [[number, id, data]], "bad": [[number, line, code, message]]}
    acts.createResults  {"file", "run"} → {}
    acts.appendResults  {"file", "run", "lines": [[number, line]]} → {"written": count}
    acts.closePage      {"file", "run", "reading", "line": {status, code, message}} → ``RowCounts``

A file that cannot be read or written now is waited for between two attempts, so it takes no slot of a worker; all other
failures are final. ``past`` is ``{run, results: [{file, run} or {workflowId, runId}], only}``: the earlier run that a
run resumes, and the results files, or the histories of runs without one, with the results of its rows.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from acts.activities.engine_activities import encode_result
from acts.delegates.sources import quote
from acts.language import wire
from acts.language.strict_json import write_json
from acts.sets import results_file
from acts.sets.set_files import SetError, find_source, open_set
from acts.sets.survey import RowIds, read_page, row_id, survey
from acts.tree.set_records import PageReading, RowCounts, bad_row_line, failed_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from acts.sets.set_files import SetSources
    from acts.sets.survey import Row
    from acts.tree.past_run import PastRow

    ReadRows = Callable[[str, str], AsyncIterator[tuple[PastRow, ...]]]
    Json = dict[str, Any]


class SetActivities:
    """The activities, with the sources that the worker's settings name.

    ``read_rows`` reads the results of the rows of a run without a results file, by its workflow id and run id.
    """

    def __init__(self, sources: SetSources, read_rows: ReadRows) -> None:
        self._sources, self._read_rows = sources, read_rows

    def all(self) -> list[Callable[..., Any]]:
        """The activities to register."""

        def in_thread(name: str, function: Callable[[Json], Json]) -> Callable[..., Any]:
            return _activity(name, lambda request: asyncio.to_thread(function, request))

        return [
            _activity(wire.SURVEY_SET, self.survey),
            in_thread(wire.READ_PAGE, self.read_page),
            in_thread(wire.CREATE_RESULTS, self.create_results),
            in_thread(wire.APPEND_RESULTS, self.append_results),
            in_thread(wire.CLOSE_PAGE, self.close_page),
        ]

    async def survey(self, request: Json) -> Json:
        """How many rows a set has, where its pages begin, and which rows an earlier run leaves to this one."""
        past = request.get("past") or {"run": None, "results": (), "only": None}
        with closing(RowIds(past["run"], past["only"])) as ids:
            for item in past["results"]:
                if "file" in item:
                    rows_before = results_file.read_past(self._results(item), item["run"])
                    await asyncio.to_thread(ids.add_past, rows_before)
                    continue
                async for rows in self._read_rows(item["workflowId"], item["runId"]):
                    await asyncio.to_thread(ids.add_past, rows)
            source = await asyncio.to_thread(find_source, request["source"], self._sources)
            counted = await asyncio.to_thread(self.count_rows, source, request.get("id"), ids)
        return counted if source == request["source"] else {**counted, "source": source}

    def count_rows(self, source: str, id_field: str | None, ids: RowIds) -> Json:
        """The survey of a file at rest, with what ``ids`` says of earlier runs."""
        with open_set(source, self._sources, is_fresh=True) as opened:
            before = os.fstat(opened.stream.fileno())
            result = survey(opened.stream, opened.name, id_field, ids)
            after = os.fstat(opened.stream.fileno())
            if not opened.is_copy and (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
                raise SetError(wire.SET_UNAVAILABLE, f"{opened.name} was written to while its rows were counted")
        return result.to_json()

    def read_page(self, request: Json) -> Json:
        """The rows of a page: those that run, and those that cannot."""
        reading = PageReading.from_json(request)
        for is_fresh in (False, True):  # a copy of another place may be stale, once
            try:
                with open_set(reading.source, self._sources, is_fresh=is_fresh) as opened:
                    opened.stream.seek(reading.page.offset)
                    rows = read_page(opened.stream, reading.dialect, reading.page, opened.name)
                break
            except SetError as error:
                if error.type != wire.SET_CHANGED or is_fresh:
                    raise
        good, bad, skipped = list[list[Any]](), list[list[Any]](), frozenset(reading.skipped)
        for number, row in enumerate(rows, reading.page.row):
            if number in skipped:
                continue
            id_, code, message = _judge(row, number, reading)
            if code:
                bad.append([number, row.line, code, message])
            else:
                good.append([number, id_, row.data])
        return {"rows": good, "bad": bad}

    def create_results(self, request: Json) -> Json:
        """Create the results file of a run."""
        results_file.create(self._results(request), request["run"])
        return {}

    def append_results(self, request: Json) -> Json:
        """Append the lines of rows that have none yet."""
        lines = ((number, write_json(line)) for number, line in request["lines"])
        return {"written": results_file.append(self._results(request), request["run"], lines)}

    def close_page(self, request: Json) -> Json:
        """Give each row of a page that has no line one with ``line``, and count the lines of all."""
        reading, read, line = request["reading"], self.read_page(request["reading"]), request["line"]
        lines = [[row[0], bad_row_line(reading["source"], row)] for row in read["bad"]]
        lines += [[n, failed_line(id_, line["code"], line["message"], line["status"])] for n, id_, _ in read["rows"]]
        self.append_results({**request, "lines": lines})
        counts, page = RowCounts(), reading["page"]
        last = page["row"] + page["rows"] - 1
        for own in results_file.read_rows(self._results(request), request["run"], page["row"], last):
            counts.add(own)
        return counts.to_json()

    def _results(self, request: Json) -> results_file.ResultsFile:
        return results_file.find_results(self._sources.results, request["file"])


def _judge(row: Row, number: int, reading: PageReading) -> tuple[str | None, str, str]:
    """The id of a row, or the code and message that say why it cannot be used."""
    if row.data is None:
        return None, wire.BAD_ROW, row.fault
    id_, reason = row_id(row.data, reading.id, number)
    if id_ is None:
        return None, wire.BAD_ROW, reason
    if number in reading.repeated:
        return None, wire.DUPLICATE_ID, f'an earlier row, which runs, has its id, "{id_}"'
    return id_, "", ""


def _activity(name: str, work: Callable[[Json], Awaitable[Json]]) -> Callable[..., Any]:
    @activity.defn(name=name)
    async def run(request: dict[str, Any]) -> RawValue:
        text = f"what is to be recorded of {quote(request.get('source') or request.get('file'))} has"
        refuse = partial(SetError, wire.SET_TOO_LARGE)
        try:
            return encode_result(await work(request), lambda n: refuse(f"{text} {n}: split it into several files"))
        except SetError as error:
            is_final = error.type in (*wire.NON_RETRYABLE_TYPES, wire.RESUME_REFUSED)
            raise ApplicationError(error.message, type=error.type, non_retryable=is_final) from error

    return run
