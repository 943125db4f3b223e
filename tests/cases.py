"""Small plans and their expected results: plain data, for the pure walk and for a real server alike.

A row is

    name      a sentence
    request   a Request
    results   by Call id: what the Activity returns, or {"$fail": {"type", "message"}}; by the id of an element,
              where it differs from that of the Call
    expect    status    of the plan
              states    by Call id
              errors    by Call id: the code (only those that have one)
              state     the state view of a global reader
              instances by instance: its state view
              written   every appended message as [path, method, value, instance or None], in plan order
              started   by Call id: the parameters that its Activity is called with (only those that matter)
              sees      by Call id: the scoped context that it is called with (as above)

No two Calls of a row use the same Tool, and the Activity of a Tool is named ``row.<tool>``: an Activity knows its Call
by the Tool, wherever it runs. A Call's id is its position in the plan and the name of its Tool.
"""

from __future__ import annotations

from tests.case_rows import Row, call, fails, own, row, state, thought, tool
from tests.cases_of_calls import FAILURES, INSTANCES, SCOPES, THOUGHTS, VALUES
from tests.cases_of_elements import CHOICES, CONDITIONS, ELEMENTS, TEMPLATES
from tests.cases_of_writes import METHODS, ORDER, OUTCOMES

__all__ = ["ROWS", "Row", "call", "fails", "own", "row", "state", "thought", "tool"]

ROWS: list[Row] = [
    *ORDER,
    *METHODS,
    *OUTCOMES,
    *FAILURES,
    *VALUES,
    *SCOPES,
    *INSTANCES,
    *THOUGHTS,
    *TEMPLATES,
    *CHOICES,
    *CONDITIONS,
    *ELEMENTS,
]
