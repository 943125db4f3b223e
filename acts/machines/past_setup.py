"""How a run that resumes another one begins: what of the earlier run counts, as ``config.resume`` says.

Laws of this file: functions over a plan and what was read of the earlier run. What cannot be done is a problem of the
Request, at its place in ``config.resume``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acts.language.config import KeepBefore
from acts.language.errors import InvalidRequest, Problem, format_choices, suggest
from acts.machines.past_calls import PastCalls
from acts.tree.past_run import prompt_digest

if TYPE_CHECKING:
    from acts.language.config import Resume
    from acts.plan.validate import ValidatedPlan
    from acts.tree.past_run import PastRun, PastSource, PastState


def past_of_root(resume: Resume, past: PastRun, prepared: ValidatedPlan) -> PastCalls:
    """What a run that a person started takes over.

    Raises:
        InvalidRequest: ``keep`` names a Call that neither plan has.
    """
    source: dict[str, Any] = {"workflowId": past.workflowId, "runId": past.runId, "keep": "completed"}
    allowed = None
    if isinstance(resume.keep, KeepBefore):
        source["keep"] = {"before": resume.keep.before}
        allowed = frozenset(calls_before(resume.keep.before, past, prepared))
    source["ids"] = "same" if resume.keeps_ids else "new"
    source |= {"only": resume.only} if resume.only is not None else {}
    return PastCalls(
        source, (past,), allowed, resume.keeps_ids, _prompt(prepared, instances=True),
        has_same_prompt=past.prompt == _prompt(prepared, instances=False),
    )  # fmt: skip


def past_of_child(source: PastSource, runs: tuple[PastRun, ...], prepared: ValidatedPlan) -> PastCalls:
    """What a run that walks instances takes over."""
    return PastCalls(
        {}, runs, None if source.calls is None else frozenset(source.calls), source.keepsIds,
        _prompt(prepared, instances=True) if source.hasSamePrompt else None,
        member=source.instances[0] if len(source.instances) == 1 else None, has_same_prompt=source.hasSamePrompt,
    )  # fmt: skip


def past_of_state(state: PastState, prepared: ValidatedPlan, instances: tuple[str, ...]) -> PastCalls:
    """What the run before had not used yet."""
    return PastCalls(
        state.source, state.past, None if state.calls is None else frozenset(state.calls), state.keepsIds,
        _prompt(prepared, instances=True) if state.hasSamePrompt or not instances else None,
        member=instances[0] if len(instances) == 1 else None, has_same_prompt=state.hasSamePrompt,
        taken={item.key: item.id for item in state.taken},
    )  # fmt: skip


def _prompt(prepared: ValidatedPlan, *, instances: bool) -> str:
    return prompt_digest([m.raw for m in prepared.request.context], instances=instances)


def calls_before(call: str, past: PastRun, prepared: ValidatedPlan) -> list[str]:
    """The ids of the Calls before this one in plan order.

    The Call is one of the plan; else it is one of the earlier run's plan, and what has its place now counts.

    Raises:
        InvalidRequest: it is neither.
    """
    ids = [node.id for node in prepared.nodes]
    if call not in ids and call in past.plan:
        place = int(call.partition(":")[0]) - 1
        successor = next((node.id for node in prepared.nodes if node.index == place), None)
        if successor is None:
            return ids
        call = successor
    if call not in ids:
        text = f'keep.before names the call "{call}", which neither this plan nor that of {past.workflowId} has'
        hint = suggest(call, ids) or f"the calls of this plan: {format_choices(ids)}"
        raise InvalidRequest([Problem("unknownCall", text, "/config/resume/keep/before", hint=hint)])
    return ids[: ids.index(call)]


def keep_failed_instances(raw: dict[str, Any], past: PastRun) -> dict[str, Any]:
    """The Request with the instances that failed in the earlier run, and no others.

    Raises:
        InvalidRequest: none of its instances has failed there.
    """
    failed = {item.id for item in past.instances if item.status == "failed"}
    context = [
        _of_instances(m, failed) for m in raw.get("context") or () if _instance(m) is None or _instance(m) in failed
    ]
    if not any(_instance(message) is not None for message in context):
        states = sorted({item.status for item in past.instances})
        known = f"its instances are {', '.join(states)}" if states else "it has no instances"
        text = f'only "failed": no instance of this request has failed in {past.workflowId}: {known}'
        hint = 'without "only", every instance that has not completed runs'
        raise InvalidRequest([Problem("invalidSetting", text, "/config/resume/only", hint=hint)])
    return {**raw, "context": context}


def _instance(message: Any) -> Any:
    return message.get("_instance") if isinstance(message, dict) else None


def _of_instances(message: Any, names: set[str]) -> Any:
    """A plan without the Calls that name another instance."""
    if not isinstance(message, dict) or message.get("type") != "plan" or not isinstance(message.get("plan"), list):
        return message
    return {**message, "plan": [c for c in message["plan"] if _instance(c) is None or _instance(c) in names]}
