"""``--set FILE[:ID]`` and ``--results FILE``: the set that the command line names in a Request."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from acts.language.errors import ActsError, format_choices
from acts.language.expression_parser import parse
from acts.language.messages import INSTANCES
from acts.language.references import paths
from acts.language.values import Json
from cli.command_errors import command_error
from cli.console import clean

# The kind of the rows where the plan does not say it
DEFAULT_KIND: Final = "row"
_ID: Final = re.compile(r"[^:/\\]+")
_REFERENCE: Final = re.compile(r"†([\w-]+)")
# Digits of the number in the name of a results file; what is longer is a date or another part of the name
_MAX_DIGITS: Final = 3
_TEMPLATE: Final = re.compile(r"†\{([\w-]+)[.}]")


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
        _put_set(context, *_split(set_file))
    elif not names_set(request):
        raise command_error(
            "no set is named, so there are no results of one", where="--results", hint="name it: --set FILE"
        )
    out = {**request, "context": context}
    if results is not None:
        out["config"] = {**(request.get("config") or {}), "results": _check_results(results)}
    return out


def next_results(file: str) -> str:
    """A results file for a run that goes on from the one that wrote this one: ``out.2.jsonl`` after ``out.jsonl``."""
    path = Path(file)
    stem, dot, number = path.stem.rpartition(".")
    if not dot or not number.isdecimal() or len(number) > _MAX_DIGITS:
        stem, number = path.stem, "1"
    count = int(number) + 1
    while (name := path.with_name(f"{stem}.{count}{path.suffix}")).exists():
        count += 1
    return str(name)


def _split(text: str) -> tuple[str, str | None]:
    """The file and the name of the field that is the id."""
    file, colon, id_ = text.rpartition(":")
    if not colon or not file or not _ID.fullmatch(id_) or Path(text).exists():
        return text, None
    return file, id_


def _put_set(context: list[Any], file: str, id_: str | None) -> None:
    value = {"source": _place(file), **({} if id_ is None else {"id": id_})}
    for index, message in enumerate(context):
        if isinstance(message, dict) and INSTANCES in message:
            own = message[INSTANCES] if isinstance(message[INSTANCES], dict) else {}
            context[index] = {**message, INSTANCES: {**own, **value}}
            return
    at = next((i for i, m in enumerate(context) if isinstance(m, dict) and m.get("type") == "plan"), len(context))
    context.insert(at, {"type": "data", "kind": _kind_of_rows(context), INSTANCES: value})


def _place(file: str) -> str:
    """A file that is here by its whole path: the worker may have been started in another folder."""
    path = Path(file)
    return str(path.absolute()) if "://" not in file and path.exists() else file


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
    plans = [m.get("plan") for m in context if isinstance(m, dict) and m.get("type") == "plan"]
    reads: dict[str, None] = {}
    writes: set[str] = {"state"}
    for call in plans[-1] if plans and isinstance(plans[-1], list) else ():
        for key, value in call.items() if isinstance(call, dict) else ():
            if key in ("_outputPath", "_errorPath"):
                writes |= _kinds_written(value)
            else:
                _collect_kinds(value, reads)
    for message in context:
        if isinstance(message, dict) and message.get("type") in ("data", "input", "state"):
            writes.add(str(message.get("kind", message["type"])))
    open_kinds = [kind for kind in reads if kind not in writes and kind not in ("item", "index", "decision")]
    if len(open_kinds) > 1:
        hint = f'add {{"type": "data", "kind": …, "{INSTANCES}": {{"source": …}}}} to the context, which says it'
        text = f"the calls read {format_choices(open_kinds)}, and the rows can be one of them"
        raise command_error(text, where="--set", hint=hint)
    return open_kinds[0] if open_kinds else DEFAULT_KIND


def _kinds_written(value: Any) -> set[str]:
    try:
        return {path.kind for path in paths(parse(value))} if isinstance(value, str) else set()
    except ActsError:
        return set()


def _collect_kinds(value: Any, kinds: dict[str, None]) -> None:
    if isinstance(value, str):
        found = _REFERENCE.findall(value) if value.startswith("†") and not value.startswith("††") else []
        kinds.update(dict.fromkeys([*found, *_TEMPLATE.findall(value)]))
    elif isinstance(value, dict):
        for item in value.values():
            _collect_kinds(item, kinds)
    elif isinstance(value, list):
        for item in value:
            _collect_kinds(item, kinds)
