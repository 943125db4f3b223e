"""``--set FILE[:ID]`` and ``--results FILE``: the set that the command line names in a Request."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from acts.cli.console import clean, command_error
from acts.language.errors import format_choices
from acts.language.messages import INSTANCES
from acts.language.references import scan
from acts.language.values import Json

# The kind of the rows where the plan does not say it
DEFAULT_KIND: Final = "row"
_KIND: Final = re.compile(r"†\{?([\w-]+)")
_NOT_ROWS: Final = ("state", "item", "index", "decision")


def names_set(request: Json) -> bool:
    """True for a Request that names a set."""
    context = request.get("context") if isinstance(request, dict) else None
    return isinstance(context, list) and any(isinstance(m, dict) and INSTANCES in m for m in context)


def add_set(request: Json, set_file: str | None, results: str | None) -> Json:
    """The Request with the set and the results file of the command line.

    A set that the Request names already gets another source. Else the rows are of the one kind that the calls read and
    that nothing provides.

    Raises:
        CommandError: the kind is not clear, or the results file exists.
    """
    if set_file is None and results is None:
        return request
    if not isinstance(request, dict) or not isinstance(request.get("context", []), list):
        return request  # the validator reports what is wrong with it
    context = list(request.get("context", []))
    if set_file is not None:
        _put_set(context, set_file)
    elif not names_set(request):
        head = "no set is named, so there are no results of one"
        raise command_error(head, where="--results", hint="name it: --set FILE")
    out = {**request, "context": context}
    if results is not None:
        out["config"] = {**(request.get("config") or {}), "results": _check_results(results)}
    return out


def next_results(file: str) -> str:
    """A results file for a run that goes on from the one that wrote this one: ``out.2.jsonl`` after ``out.jsonl``."""
    path = Path(file)
    stem, count = path.stem, 2
    if numbered := re.fullmatch(r"(.+)\.(\d{1,3})", stem):  # longer numbers are dates
        stem, count = numbered[1], int(numbered[2]) + 1
    while (name := path.with_name(f"{stem}.{count}{path.suffix}")).exists():
        count += 1
    return str(name)


def _put_set(context: list[Any], text: str) -> None:
    file, id_ = text, None
    if not Path(text).exists() and (named := re.fullmatch(r"(.+):([^:/\\]+)", text)):
        file, id_ = named[1], named[2]
    if Path(file).exists():  # the worker may have been started in another folder
        file = str(Path(file).absolute())
    value = {"source": file, **({} if id_ is None else {"id": id_})}
    for index, message in enumerate(context):
        if isinstance(message, dict) and INSTANCES in message:
            own = message[INSTANCES] if isinstance(message[INSTANCES], dict) else {}
            context[index] = {**message, INSTANCES: {**own, **value}}
            return
    at = next((i for i, m in enumerate(context) if isinstance(m, dict) and m.get("type") == "plan"), len(context))
    context.insert(at, {"type": "data", "kind": _kind_of_rows(context), INSTANCES: value})


def _check_results(file: str) -> str:
    path = Path(file)
    if path.exists():
        hint = "remove it, or name another one: a run appends only to its own"
        raise command_error(f"{clean(file, 200)} exists already", where="--results", hint=hint)
    return str(path.absolute()) if path.absolute().parent.is_dir() else file


def _kind_of_rows(context: list[Any]) -> str:
    """The kind that calls read and nothing provides.

    Raises:
        CommandError: there are several.
    """
    messages = [message for message in context if isinstance(message, dict)]
    provided = {str(m.get("kind", m["type"])) for m in messages if m.get("type") in ("data", "input", "state")}
    plans = [m.get("plan") for m in messages if m.get("type") == "plan"]
    reads: dict[str, None] = {}
    for call in plans[-1] if plans and isinstance(plans[-1], list) else ():
        for key, value in call.items() if isinstance(call, dict) else ():
            kinds = [kind for _, text in scan(value) for kind in _KIND.findall(text)]
            if key in ("_outputPath", "_errorPath"):
                provided.update(kinds)
            else:
                reads.update(dict.fromkeys(kinds))
    open_kinds = [kind for kind in reads if kind not in provided and kind not in _NOT_ROWS]
    if len(open_kinds) > 1:
        hint = f'add {{"type": "data", "kind": …, "{INSTANCES}": {{"source": …}}}} to the context, which says it'
        text = f"the calls read {format_choices(open_kinds)}, and the rows can be one of them"
        raise command_error(text, where="--set", hint=hint)
    return open_kinds[0] if open_kinds else DEFAULT_KIND
