"""Our worker with one change: other workflows, or one other setting.

    python -m benchmarks.served handwritten
    python -m benchmarks.served no-eager

It makes the change and then runs ``python -m acts.worker``, so that everything else is equal.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Final

from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from acts.worker import plugin
from acts.worker import serve as worker
from acts.worker.serve import DrainingWorker
from benchmarks.handwritten import WORKFLOWS

SDK_RESERVATIONS: Final = 3


def _sandboxed() -> SandboxedWorkflowRunner:
    """The SDK's sandbox with every module passed through: its cheapest form."""
    return SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_all_modules())


# Single changes: arguments of Worker
CHANGES: Final[dict[str, Any]] = {
    "none": dict,
    "no-eager": lambda: {"disable_eager_activity_execution": True},
    "few-reservations": lambda: {"max_eager_activity_reservations_per_workflow_task": SDK_RESERVATIONS},
    "sandboxed": lambda: {"unsandboxed_workflow_runner": _sandboxed()},
}


def main() -> int:
    """Serve until stopped."""
    name = sys.argv[1]
    if name == "handwritten":
        plugin.WORKFLOWS[:] = WORKFLOWS
    else:
        change = CHANGES[name]()

        @functools.wraps(DrainingWorker)
        def build(*args: Any, **settings: Any) -> DrainingWorker:
            return DrainingWorker(*args, **{**settings, **change})

        vars(worker)["DrainingWorker"] = build
    return worker.main()


if __name__ == "__main__":
    sys.exit(main())
