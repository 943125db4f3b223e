"""Plans by name: the files of the folders of ``ACTS_PLANS``, separated like ``PATH``, read when the worker starts.

``refund.yaml`` is the plan ``refund``: a Request, in JSON or YAML. A file that is none stops the worker, with its name
and line. One that says ``run`` and has a schema of its input is a Tool of that name, too, which a delegate walks. Tests
of plans (``*.test.yaml``) lie beside them and are left out. A run is started with ``{"plan": "refund", "input": {…}}``;
it asks once, and goes on with the Request as it was then (``pin_plan``).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Final

from temporalio.exceptions import ApplicationError

from acts.delegates.definitions import MAX_BYTES
from acts.delegates.sources import read_folders
from acts.language.errors import MAX_NAME, InvalidRequest, SettingsError, format_choices, shell, suggest, truncate
from acts.language.messages import choose_workflow, output_schema, read_request
from acts.language.source_text import SUFFIXES, Format, SourceText, TextError, parse
from acts.language.values import defect
from acts.language.wire import AGENT, INNER_PLAN, PLAN, PLAN_NOT_FOUND
from acts.plan.validate import PLAN_NAME, settings_problems_of
from acts.tree.child_requests import named_delegates

PLAN_FOLDERS: Final = "ACTS_PLANS"


@dataclass(frozen=True)
class NamedPlan:
    """A plan that this worker serves; ``workflow`` is the type that it is for, ``sha256`` that of the file."""

    request: dict[str, Any]
    sha256: str
    file: Path
    workflow: str


def plans_from_environment() -> dict[str, NamedPlan]:
    """The plans by their names. Raises SettingsError: a folder or a file cannot be used."""
    return read_plans(read_folders(PLAN_FOLDERS, os.environ.get(PLAN_FOLDERS, "")))


def read_plans(folders: Iterable[Path]) -> dict[str, NamedPlan]:
    plans: dict[str, NamedPlan] = {}
    for file in plan_files(folders):
        if (other := plans.get(file.stem)) is not None:
            raise SettingsError(f'two plans are called "{file.stem}": {other.file} and {file}')
        plans[file.stem] = _read_plan(file)
    _refuse_circles(plans)
    return plans


def find_plan(name: str, plans: Mapping[str, NamedPlan]) -> NamedPlan:
    """Raises ApplicationError: the worker has none of that name."""
    if (plan := plans.get(name)) is None:
        near = suggest(name, plans) or (f"there are: {format_choices(sorted(plans))}" if plans else "set ACTS_PLANS")
        text = f'no plan "{truncate(name, MAX_NAME)}" is served by this worker: {near}'
        raise ApplicationError(text, type=PLAN_NOT_FOUND, non_retryable=True)
    return plan


def plan_tools(plans: Mapping[str, NamedPlan]) -> dict[str, dict[str, Any]]:
    """The Tools that plans are."""
    out: dict[str, dict[str, Any]] = {}
    writes = {name: {"type": "string"} for name in ("_outputPath", "_errorPath", "_outputMethod")}
    for name, plan in plans.items():
        request = read_request(plan.request)
        inputs = [m for m in request.data() if m.kind == "input" and isinstance(m.schema, dict)]
        if not inputs or request.plan is None or not request.plan.run:
            continue
        about, schema = inputs[-1].raw.get("description"), dict(inputs[-1].schema)
        fixed = {"_tool": {"const": name}, "_delegate": {"const": f"{INNER_PLAN}/{name}"}}
        result = {"_output": output} if (output := output_schema(request.schema)) is not None else {}
        out[name] = {
            "additionalProperties": False, **schema, "type": "object",
            "description": about if isinstance(about, str) else f'Walks the plan "{name}".',
            "properties": {**fixed, **writes, **result, **schema.get("properties", {})},
        }  # fmt: skip
    return out


def _refuse_circles(plans: Mapping[str, NamedPlan]) -> None:
    """Raise SettingsError for a plan that walks itself, through others, too."""
    prefix = f"{INNER_PLAN}/"
    named = {name: set(named_delegates(plan.request)) for name, plan in plans.items()}
    inside = {name: [n for n in plans if prefix + n in names] for name, names in named.items()}
    try:
        TopologicalSorter(inside).prepare()
    except CycleError as error:
        circle = error.args[1][::-1]
        text = f"the plan walks itself: {' → '.join(circle)}; what is done again has repeat"
        raise SettingsError(f"{plans[circle[0]].file}: {text}") from None


def plan_files(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        for file in sorted(folder.iterdir()):
            is_other = file.name.startswith(".") or file.stem.endswith(".test") or not file.is_file()
            if file.suffix.lower() in SUFFIXES and not is_other:
                yield file


def _read_plan(file: Path) -> NamedPlan:
    if not PLAN_NAME.fullmatch(file.stem):
        raise SettingsError(f"{file}: the name of a plan is letters, digits, _, - and ., at most 100")
    try:
        data = file.read_bytes()
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, ValueError) as error:
        raise SettingsError(f"{file} cannot be read as text in UTF-8: {error}") from None
    if len(data) > MAX_BYTES:
        raise SettingsError(f"{file} has {len(data):,} bytes; a plan has at most {MAX_BYTES:,}")
    format_: Format = "JSON" if file.suffix.lower() == ".json" else "YAML"
    try:
        source = SourceText(str(file), text, format_, parse(text, format_))
    except TextError as error:
        line = "" if error.position is None else f":{error.position.line}:{error.position.column}"
        raise SettingsError(f"{file}{line}: {error.message}") from None
    if (broken := defect(source.value)) is not None:
        raise SettingsError(f"{source.where(broken[0])}: {broken[1]}")
    return NamedPlan(source.value, hashlib.sha256(data).hexdigest(), file, _workflow_of(source))


def _workflow_of(source: SourceText) -> str:
    """The type of workflow that a plan is for. Raises SettingsError: it is no Request, or has no plan."""
    try:
        request = read_request(source.value)
        problems = [p for p in (*request.problems, *settings_problems_of(request)) if p.fatal]
    except InvalidRequest as error:
        problems = list(error.problems)
    if problems:
        first, more = problems[0], len(problems) - 1
        text = f"{source.where(first.pointer)}: {first.text()}"
        raise SettingsError(text + (f" (and {more} more: {shell('acts', 'validate', source.name)})" if more else ""))
    is_agent, _ = choose_workflow(request)
    if request.plan is None and not is_agent:
        raise SettingsError(f"{source.name}: it has no plan, and no config.model that makes one")
    return AGENT if is_agent else PLAN
