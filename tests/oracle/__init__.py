"""The expected result of a plan, computed the slow way: one Call after another.

This package is the protocol's promise of serial equivalence in the plainest code that keeps it. It shares nothing with
``acts/``: it has its own parser of expressions, its own folds (from the first message, every time) and its own
overlap tests (every pair). Never make it clever, and never change it to agree with the engine unless a sentence of
the protocol says so.

What the protocol leaves open, and what is assumed here (each marked OPEN below, as in the engine's docs):

* an alternative of several paths is satisfied when each path has a value in the context or overlaps a write that is
  listed before;
* a list on the way to an output path is a runtime error of the Call (a scalar there is replaced by an object);
* ``merge`` accepts two objects or two lists, ``assign`` two objects; anything else is of the wrong kind;
* a failure before anything ran (references, schema) is written to the error path too, with the Call's method;
* a Call with an ``_errorPath`` alone is waited for, and writes nothing when it succeeds;
* where several alternatives are as good, or of none every path is held, a Message means the one that covers it;
* a dependency took another outcome when it did not write a path that overlaps a missing one;
* when a later global write replaces the list that an instance pushed onto, the instance's message is applied as if
  nothing were there;
* a scope that leads into a list keeps the index in the list, with null before it;
* in a condition, `&&` and `||` ask of each operand whether it holds: it yields a value other than false;
* the result of an element is a value as it is, a Message too; the list of all goes to the first alternative;
* an expression of `†item` and a path of the context is withheld when it is absent for some element and the path is
  absent too; what an element alone lacks is the failure of that element.

Not modelled: schemas, approval, ``missing: "wait"``, agents.
"""

from __future__ import annotations

from tests.oracle.expressions import (
    ABSENT,
    Malformed,
    Where,
    alternatives,
    evaluate,
    holds,
    parse,
    parse_condition,
    paths,
    resolve,
    yields,
)
from tests.oracle.folding import DATA_LIKE, Entry, Refused, deep_merge, entry, get, put, read_messages, view
from tests.oracle.ordering import Cycle, unsatisfied
from tests.oracle.serial_run import SOME_TEXT, Outcome, call_of, compute, instances_of, is_failure, run

__all__ = [
    "ABSENT",
    "DATA_LIKE",
    "SOME_TEXT",
    "Cycle",
    "Entry",
    "Malformed",
    "Outcome",
    "Refused",
    "Where",
    "alternatives",
    "call_of",
    "compute",
    "deep_merge",
    "entry",
    "evaluate",
    "get",
    "holds",
    "instances_of",
    "is_failure",
    "parse",
    "parse_condition",
    "paths",
    "put",
    "read_messages",
    "resolve",
    "run",
    "unsatisfied",
    "view",
    "yields",
]
