"""What the Batch of a page is started with, and what its rows are read with. Nothing of the run changes here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acts.tree.set_records import BatchInput, SetPage, SetSource
from acts.tree.set_rows import shared_request

if TYPE_CHECKING:
    from acts.machines.set_run import SetRun


def page_input(run: SetRun, name: str, page: SetPage, share: int) -> BatchInput:
    """The input of the Batch that walks this page with ``share`` Calls in flight. It holds a lease of that name."""
    setup, message, survey, config = run.setup, run.setup.message, run.progress.survey or {}, run.config
    per_child = config.instancesPerChild if "instancesPerChild" in config.model_fields_set else None
    request = shared_request(setup.raw, message, share, per_child)
    at = message.index
    request["context"][at:at] = run.provided
    below = {"permitKeeper": run.own if run.permits.is_keeper else run.permits.keeper, "keepsPermits": True}
    identity = None if setup.resumed is None else setup.resumed.identity
    position = run.position.child(run.own, identity=identity)
    position = position.model_copy(update={**below, "maxParallel": share})
    source = SetSource(source=message.source, index=at, type=message.type, kind=message.kind, id=message.id_field)
    return BatchInput(
        request=request, position=position, capabilities=setup.capabilities,
        approve=(setup.raw.get("config") or {}).get("approve"), lease=run.permits.lease(name),
        set=source, dialect=survey["dialect"], page=page,
        repeated=run.progress.repeated_on(page), skipped=run.progress.skipped_on(page),
        results=config.results, run=run.position.identity,
    )  # fmt: skip


def page_query(run: SetRun, page: SetPage) -> dict[str, Any]:
    """What an activity of this run reads the rows of a page with."""
    message, survey = run.setup.message, run.progress.survey or {}
    query = {
        "source": message.source, "id": message.id_field, "dialect": survey["dialect"], "page": page.to_json(),
        "repeated": list(run.progress.repeated_on(page)), **run.address(),
    }  # fmt: skip
    skipped = run.progress.skipped_on(page)
    return {**query, "skipped": list(skipped)} if skipped else query
