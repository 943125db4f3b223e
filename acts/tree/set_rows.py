"""The rows of a page as instances: the Request that a Batch walks, and the lines of the results.

Laws of this file: functions over plain data. A line is ``{id, status, state, errors}``; a row that cannot be used is
named by its line in the file, since its id is unknown or that of another row.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import truncate
from acts.language.wire import BAD_ROW, DUPLICATE_ID
from acts.tree.set_records import BatchInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from acts.language.messages import SetData

# Failures that a run over a set lists, and the errors of each
MAX_FAILURES: Final = 100
MAX_ERRORS: Final = 3
# Characters of the message of each: 100 failures are at most 300 kB in the state that the run carries over
MAX_ERROR: Final = 1_000
# Digits of a line number in an id: files have fewer than 1e15 lines
_BAD_ROW_ID: Final = re.compile(r"line ([1-9][0-9]{0,14})")
# Instances of a set that one child walks, unless the Request says otherwise: see docs/sets.md
INSTANCES_PER_CHILD: Final = 25
# Settings that hold for the whole set: a Batch has its own, or none
_OF_THE_ROOT: Final = ("budget", "results", "resume")


def shared_request(raw: Mapping[str, Any], message: SetData, share: int, per_child: int | None) -> dict[str, Any]:
    """The Request of a Batch without rows; ``share`` is how many Calls it may have in flight."""
    config = {k: v for k, v in (raw.get("config") or {}).items() if k not in _OF_THE_ROOT}
    approve = config.get("approve")
    config["approve"] = {**approve, "plan": False} if isinstance(approve, dict) else {"plan": False}
    config |= {"maxParallel": share, "instancesPerChild": per_child or INSTANCES_PER_CHILD}
    context = [m for i, m in enumerate(raw["context"]) if i != message.index]
    return {"config": config, "context": context}


def page_request(own: BatchInput, rows: Iterable[Sequence[Any]]) -> dict[str, Any]:
    """The Request of a Batch with its rows, ``[number, id, data]``, as the data of one instance each."""
    at, of = own.set.index, own.set
    messages = [{"type": of.type, "kind": of.kind, of.type: data, "_instance": id_} for _, id_, data in rows]
    context = own.request["context"]
    return {**own.request, "context": [*context[:at], *messages, *context[at:]]}


def line_of(id_: str, report: Mapping[str, Any]) -> dict[str, Any]:
    """The line of an instance."""
    return {
        "id": id_, "status": report.get("status", "failed"), "state": report.get("state", {}),
        "errors": list(report.get("errors") or ()),
    }  # fmt: skip


def failed_line(id_: str, code: str, message: str, status: str = "failed") -> dict[str, Any]:
    """The line of a row that did not run, or of which nothing is known."""
    return line_of(id_, {"status": status, "errors": [{"call": None, "code": code, "message": message}]})


def count_lines(lines: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """``{completed, failed, failures}`` of some lines: what the run over the set adds."""
    completed = failed = 0
    failures: list[dict[str, Any]] = []
    for line in lines:
        if line["status"] == "completed":
            completed += 1
            continue
        failed += 1
        if len(failures) < MAX_FAILURES:
            failures.append(failure_of(line))
    return {"completed": completed, "failed": failed, "failures": failures}


def bad_row_line(source: str, bad: Sequence[Any]) -> dict[str, Any]:
    """The line of a row that cannot be used: ``[number, line, code, message]``."""
    _, line, code, message = bad
    return failed_line(f"line {line}", code, f"line {line:,} of {source}: {message}")


def bad_row_number(id_: str, errors: Any) -> int | None:
    """The line in the set of a row that could not be used, by its id and its errors; None for any other row.

    A row may have an id like ``line 3``, too. ``errors`` None: they are not known.
    """
    match = _BAD_ROW_ID.fullmatch(id_)
    if match is None:
        return None
    error = errors[0] if isinstance(errors, list) and errors else None
    is_of_row = isinstance(error, dict) and error.get("call") is None and error.get("code") in (BAD_ROW, DUPLICATE_ID)
    return int(match[1]) if is_of_row or errors is None else None


def failure_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """What the run over the set keeps of a failure: ``{id, status, errors}``."""
    errors = [
        {"call": e.get("call"), "code": e.get("code"), "message": truncate(str(e.get("message")), MAX_ERROR)}
        for e in list(line["errors"])[:MAX_ERRORS]
    ]
    return {"id": line["id"], "status": line["status"], "errors": errors}
