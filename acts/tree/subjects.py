"""What a decision is about: all that will happen if it is carried out, as JSON that people see and approvers sign.

A *subject* of a Call is what answers it, the Call with its references resolved, what its scopes show and where it may
write; of a plan its Calls as written and the values that they read from the context. What is approved is a subject: a
Call that would start with another one waits again. The digest of a subject is SHA-256 of its RFC 8785 form.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from acts.language.config import Config
from acts.language.references import Path, conjunction
from acts.language.schemas import with_defs
from acts.language.strict_json import json_size
from acts.language.values import ABSENT, Json, is_equal
from acts.plan.calls import PlannedCall
from acts.tree.records import Capabilities
from acts.tree.wire_format import digest

# Bytes of JSON above which a subject has the digest of a value from the context in its place
MAX_SHOWN: Final = 2_000
# … and above which a run keeps the digest of a part of what was approved
_MAX_KEPT: Final = 200
# Differences that a wait names, and the characters of each value in them
MAX_CHANGES: Final = 20


def answered_by(node: PlannedCall, config: Config, capabilities: Capabilities) -> dict[str, Json]:
    """What stands behind a Call: ``{activity, taskQueue?}``, ``{delegate, sha256?, uses?}``, ``{person: [who]}`` or
    ``{model, fallbackModels?}``.

    ``uses`` are the definitions that a definition names, and that those name: SHA-256 by name.
    """
    if node.delegate is not None:
        pin, uses = capabilities.pins.get(node.delegate), capabilities.uses.get(node.delegate)
        answer: dict[str, Json] = {"delegate": node.delegate} | ({} if pin is None else {"sha256": pin})
        answer |= {"uses": dict(uses)} if uses else {}
        return answer | ({"activity": node.tool.activity} if node.tool.activity else {})
    if node.tool.person is not None:
        return {"person": list(node.tool.person.who)}
    if node.kind == "latent":
        others = {"fallbackModels": list(config.fallbackModels)} if config.fallbackModels else {}
        return {"model": config.latent_model, **others}
    queue = node.tool.options.taskQueue
    return {"activity": node.tool.answer} | ({} if queue is None else {"taskQueue": queue})


def call_subject(
    node: PlannedCall, call: Mapping[str, Json], context: Iterable[Json], config: Config, known: Capabilities
) -> dict[str, Json]:
    """``{call, instance?, tool, answeredBy, with, context?, writes?, undo?}``; of what a person answers also
    ``{question?, form}``: the Tool's description, and the JSON schema of the answer.

    ``call`` has its references resolved, ``context`` is what its scopes show.
    """
    messages, tool = [show(message) for message in context], node.tool
    form = {} if tool.person is None else {"form": with_defs(tool.output, tool.schema)}
    if form and isinstance(question := tool.schema.get("description"), str):
        form["question"] = question
    return {
        "call": node.id, **({} if node.instance is None else {"instance": node.instance}), "tool": node.tool.name,
        "answeredBy": answered_by(node, config, known), "with": {k: v for k, v in call.items() if k != "_id"},
        **({"context": messages} if messages else {}), "writes": [conjunction(outcome) for outcome in node.outcomes],
        **({} if tool.undo is None else {"undo": tool.undo}), **form,
    }  # fmt: skip


def plan_subject(
    calls: Iterable[Json], nodes: Collection[PlannedCall], read: Callable[[Path, str | None], Json], config: Config,
    known: Capabilities, instances: Mapping[str, Json] | None = None,
) -> dict[str, Json]:  # fmt: skip
    """``{plan, answeredBy, values, undo?, onFailure?, instances?}``: ``undo`` is what undoes a Call, by its id.

    ``read`` yields what the context has before any Call of the plan writes; ``instances`` stands for all their data.
    """
    values: dict[str, Json] = {}
    answers: dict[str, Json] = {}
    for node in nodes:
        answers[node.id] = answered_by(node, config, known)
        paths = [*node.scopes, *(path for use in node.reads for path in use.paths)]
        for path in paths if instances is None else ():
            name = f"{path}" if node.instance is None else f"{path} [{node.instance}]"
            if name not in values and (value := read(path, node.instance)) is not ABSENT:
                values[name] = show(value)
    undo = {node.id: node.tool.undo for node in nodes if node.tool.undo is not None}
    return {
        "plan": list(calls), "answeredBy": answers, "values": values, **({"undo": undo} if undo else {}),
        **({} if config.onFailure is None else {"onFailure": config.onFailure}),
        **({} if instances is None else {"instances": dict(instances)}),
    }  # fmt: skip


def show(value: Json, most: int = MAX_SHOWN) -> Json:
    """A value as a subject has it: ``{sha256, bytes}`` of one whose JSON is larger than so many bytes, or looks so."""
    size = json_size(value)
    poses = isinstance(value, dict) and value.keys() == {"sha256", "bytes"}
    return {"sha256": digest(value), "bytes": size} if poses or size > most else value


def keep(subject: Mapping[str, Json]) -> dict[str, Json]:
    """A subject as a run keeps it: each part that is large by its digest. Equal subjects are kept as equal ones."""
    return {name: _keep_parts(part) for name, part in subject.items()}


def _keep_parts(part: Json) -> Json:
    return {k: show(v, _MAX_KEPT) for k, v in part.items()} if isinstance(part, dict) else show(part, _MAX_KEPT)


def find_changes(before: Mapping[str, Json], after: Mapping[str, Json]) -> list[dict[str, Json]]:
    """``[{part, from?, to?}]`` of two kept subjects: the parts that differ, like ``with.amount``."""
    changes: list[dict[str, Json]] = []
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name, ABSENT), after.get(name, ABSENT)
        if isinstance(old, dict) and isinstance(new, dict):
            pairs = [(f"{name}.{k}", old.get(k, ABSENT), new.get(k, ABSENT)) for k in dict.fromkeys((*old, *new))]
        else:
            pairs = [(name, old, new)]
        for part, one, other in pairs:
            if one is ABSENT or other is ABSENT or not is_equal(one, other):
                sides = {"from": one, "to": other}
                changes.append({"part": part, **{k: v for k, v in sides.items() if v is not ABSENT}})
    return changes[:MAX_CHANGES]


def calls_changes(before: list[Json], after: list[Json]) -> list[dict[str, Json]]:
    """``[{call, from?, to?}]`` of two plans: the Calls, by position from 1, that an edit changed, added or removed."""
    changes: list[dict[str, Json]] = []
    for at in range(max(len(before), len(after))):
        old, new = (calls[at] if at < len(calls) else ABSENT for calls in (before, after))
        if old is ABSENT or new is ABSENT or not is_equal(old, new):
            sides = {k: show(v) for k, v in (("from", old), ("to", new)) if v is not ABSENT}
            changes.append({"call": at + 1, **sides})
    return changes[:MAX_CHANGES]
