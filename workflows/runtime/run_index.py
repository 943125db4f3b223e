"""Writes the search attributes of a root, one event for each change of its phase, and hands ``ActsRoot`` down.

A run that has ``ActsRoot`` writes them: a root gives it to itself when the namespace has the attributes, a child is
started with it, and continue-as-new keeps it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow
from temporalio.common import RetryPolicy, SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.exceptions import ActivityError, is_cancelled_exception

from acts.language.wire import SEARCH_ATTRIBUTES
from acts.simulation.billable_actions import SEARCH_UPDATE
from acts.tree import search_attributes as names
from workflows.runtime.run_meters import RunMeters

if TYPE_CHECKING:
    from acts.machines.run_machine import RunMachine
    from acts.simulation.billable_actions import ActionCount
    from acts.views.run_views import RunView

# Above the activity's own limit for its one request
CHECK_SECONDS: Final = 5.0

ROOT: Final = SearchAttributeKey.for_keyword(names.ROOT)
PHASE: Final = SearchAttributeKey.for_keyword(names.PHASE)
WAITING: Final = SearchAttributeKey.for_int(names.WAITING)
_KEYS: Final[dict[str, SearchAttributeKey[Any]]] = {
    names.PHASE: PHASE, names.WAITING: WAITING, names.TOOLS: SearchAttributeKey.for_keyword_list(names.TOOLS),
    names.MODEL: SearchAttributeKey.for_keyword(names.MODEL), names.COST: SearchAttributeKey.for_float(names.COST),
    names.ROOT: ROOT,
}  # fmt: skip


def child_attributes() -> TypedSearchAttributes | None:
    """What a child of this run is started with; None where the namespace has no such attributes."""
    root = workflow.info().typed_search_attributes.get(ROOT)
    return None if root is None else TypedSearchAttributes([SearchAttributePair(ROOT, root)])


class RunIndex:
    """What can be seen of one run from outside: ``meters`` count, and search attributes find it.

    ``update`` writes them if its phase, or whether anything waits, has changed.
    """

    def __init__(self, run: RunMachine, view: RunView, actions: ActionCount) -> None:
        self._run, self._view, self._actions = run, view, actions
        self.meters = RunMeters(run)
        attributes = workflow.info().typed_search_attributes
        self._is_indexed = run.position.is_root and attributes.get(ROOT) is not None
        self._last = attributes.get(PHASE), bool(attributes.get(WAITING))

    async def begin(self, *, is_first_run: bool) -> None:
        """Ask the server, once, whether the namespace has the attributes."""
        if self._is_indexed or not (is_first_run and self._run.position.is_root):
            return
        self._is_indexed = await _has_attributes()
        self._actions.record_local_activity(workflow.info().get_current_history_length())

    def update(self) -> None:
        """Write the attributes if the phase has changed since the last time, and count what else has."""
        self.meters.update()
        if not self._is_indexed:
            return
        current = self._run.phase, bool(self._run.approvals.pending)
        if current == self._last:
            return
        self._last = current
        info = workflow.info()
        values = {names.ROOT: info.typed_search_attributes.get(ROOT) or info.workflow_id, **self._view.search_values()}
        self._actions.record(SEARCH_UPDATE)
        held = info.typed_search_attributes
        changes = [_KEYS[k].value_set(v) for k, v in values.items() if v is not None and held.get(_KEYS[k]) != v]
        workflow.upsert_search_attributes(changes)


async def _has_attributes() -> bool:
    try:
        answer: bool = await workflow.execute_local_activity(
            SEARCH_ATTRIBUTES, result_type=bool, summary="whether the namespace has our search attributes",
            start_to_close_timeout=timedelta(seconds=CHECK_SECONDS), retry_policy=RetryPolicy(maximum_attempts=1),
        )  # fmt: skip
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return False
    return answer
