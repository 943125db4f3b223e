"""What people and programs see of a run over a set: how far it has come. Its rows are seen in the runs below it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.values import ABSENT
from acts.machines.past_sets import report_resumed
from acts.views import approval_page
from acts.views.markdown import code_span
from acts.views.mermaid import render_graph
from acts.views.run_views import add_common, context_page, search_values
from acts.views.web_page import approvals_section

if TYPE_CHECKING:
    from acts.machines.set_run import SetRun

# Batches and failures that the page in the Web UI names
_MAX_BATCHES: Final = 20
_MAX_FAILURES: Final = 20
# Failures that the message of a failed workflow names
_MAX_IN_TEXT: Final = 20


class SetView:
    """The view of a run over a set."""

    def __init__(self, run: SetRun) -> None:
        self._run = run
        self._proposal: str | None = None

    def counts(self) -> dict[str, Any]:
        """``{total, completed, failed, running}``; ``total`` None until the rows are counted."""
        progress = self._run.progress
        return {
            "total": progress.total, "completed": progress.completed, "failed": progress.failed,
            "running": sum(map(progress.rows_to_run, self._run.running.values())),
        }  # fmt: skip

    def status(self) -> dict[str, Any]:
        """``{phase, calls, usage, instances, failures, batches?, waits?, notes?, decisions?}``."""
        run = self._run
        out: dict[str, Any] = {
            "phase": run.phase, "calls": [], "usage": run.usage.to_json(), "instances": self.counts(),
            "failures": [failure["id"] for failure in run.progress.failures],
        }  # fmt: skip
        if run.children:
            out["batches"] = list(run.children.values())
        if run.progress.stopped is not None:
            out["errors"] = run.progress.errors()[:1]
        return add_common(run, out | report_resumed(run))

    def page(self) -> str:
        """The Markdown page in the Web UI."""
        run, progress = self._run, self._run.progress
        total = progress.total
        share = "" if not total else f" ({100 * progress.ended // total} %)"
        rows = "counting the rows" if total is None else f"{progress.ended:,} of {total:,} rows have ended{share}"
        counts = self.counts()
        lines = [
            f"**{run.phase}** · {code_span(run.setup.message.source)}: {rows}",
            f"{counts['completed']:,} completed, {counts['failed']:,} failed, {counts['running']:,} running",
        ]
        if run.config.results is not None:
            lines.append(f"results: {code_span(run.config.results)}")
        lines += [f"running: {code_span(id_)}" for id_ in list(run.children.values())[:_MAX_BATCHES]]
        lines += [f"failed: {code_span(_failure_line(f))}" for f in progress.failures[:_MAX_FAILURES]]
        if progress.stopped is not None:
            lines.append(f"stopped: {code_span(progress.errors()[0]['message'], 300)}")
        lines += [f"note: {code_span(note, 300)}" for note in run.all_notes]
        page = "\n\n".join(lines)
        page += approvals_section(run.approvals.pending, run.approvals.records)
        return page if run.is_approved or run.finished is not None else page + self._proposed()

    def _proposed(self) -> str:
        """The plan that waits, with the forecast for one row."""
        if self._proposal is None:
            prepared = self._run.setup.prepared
            self._proposal = approval_page.page(prepared, approval_page.simulate_for_page(prepared))
        return self._proposal

    def plan(self) -> list[Any]:
        """The plan's Calls as they were written."""
        plan = self._run.setup.prepared.request.plan
        return list(plan.calls) if plan is not None else []

    def context(self, page: Any, limit: int) -> Any:
        """The messages of the Request; rows are in the runs that walk them."""
        messages = [m.raw for m in self._run.setup.prepared.request.context]
        return context_page(lambda: messages, lambda _tree, _instance: ABSENT, page, limit)

    def prompt_context(self, page: Any, limit: int) -> dict[str, Any]:  # noqa: ARG002 - the view of every run
        """Nothing: requests to models are made below."""
        return {"messages": []}

    def graph(self, options: Any) -> Any:
        """The template as a Mermaid flowchart."""
        return render_graph(self._run.setup.prepared, {"calls": [], "instances": {}}, options)

    def search_values(self) -> dict[str, Any]:
        """The search attributes, with the Tools of the plan's Calls."""
        return search_values(self._run, (node.tool.name for node in self._run.setup.prepared.nodes))

    def pending_parameters(self, limit: int) -> dict[str, Any]:  # noqa: ARG002 - the view of every run
        """Nothing: Calls wait in the runs below."""
        return {"editable": False, "calls": []}

    # -- the end --------------------------------------------------------------------------------

    def result(self) -> dict[str, Any]:
        """The result of a Plan over a set."""
        run = self._run
        errors = run.progress.errors()
        if run.failure is not None:
            errors.append({"call": None, "code": run.failure.code, "message": run.failure.message})
        out: dict[str, Any] = {
            "status": run.finished, "state": {}, "instances": self.counts(),
            "failures": [failure["id"] for failure in run.progress.failures],
            "calls": [], "context": [], "errors": errors, "usage": run.usage.to_json(),
        }  # fmt: skip
        if run.config.results is not None:
            out["results"] = run.config.results
        out |= report_resumed(run)
        if run.approvals.records:
            out["decisions"] = run.approvals.records
        return out

    @property
    def failure_text(self) -> str:
        """What the message of a failed workflow says."""
        progress = self._run.progress
        if progress.stopped is not None:
            return str(progress.errors()[0]["message"])
        lines = [f"- {_failure_line(failure)}" for failure in progress.failures[:_MAX_IN_TEXT]]
        if progress.failed > len(lines):
            lines.append(f"- … and {progress.failed - len(lines):,} more")
        return "\n".join([f"{progress.text()}:", *lines])


def _failure_line(failure: dict[str, Any]) -> str:
    errors = failure["errors"]
    why = f"[{errors[0]['code']}] {errors[0]['message']}" if errors else failure["status"]
    return f"{failure['id']}: {why}"
