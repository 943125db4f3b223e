"""NESTFUL's gold sequences of nested calls as plans: how many are valid, and how many yield the gold answer.

``$var1.output$`` becomes the reference ``†state.var1.output``, inside a text ``†{…}``; arithmetic in an argument becomes a
Call of ``compute``. Where the data set has its functions, they answer the Calls in a rehearsal.

    python -m benchmarks.evidence nestful PATH [FILE …]

PATH: a checkout of github.com/TathagataChakraborti/NESTFUL (a fork of IBM/NESTFUL); the figures are of commit 93bab322.
FILE: tasks of version 2 as JSON Lines. ``data_v2/nestful_data.jsonl``, 1,861 tasks, is above 4 MiB and was not at hand: the
figures are of 200 of them, ``experiments/nestful_mtgrpo_minimal/data/splits/nestful_dev.jsonl`` of
github.com/MartinSasinka/Tool-R0, commit fdf8e579. The data set's functions run in this process: look at them first.
"""

from __future__ import annotations

import json
import re
import runpy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from acts.activities.shipped_tools import SHIPPED
from acts.language.errors import InvalidRequest
from acts.plan.validate import validate_request
from acts.testing.rehearsal import Script, rehearse
from benchmarks.tables import Table

Json = Any
Loader = Callable[[str], Callable[..., Json]]

REFERENCE: Final = re.compile(r"\$(var_?\d+)((?:\.[^$]+?|\[\d+\])*)(?:\$|$)")
ARITHMETIC: Final = re.compile(r"[\s\d.+*/()-]+")
COLUMNS: Final = ["", "sequences", "calls", "valid plans", "against the schema of a tool", "reference to no call", "gold answer"]  # fmt: skip
NOTE: Final = (
    "The two columns after the valid plans say why the others are none. A dash: the data set has no functions."
)
TYPES: Final = {"int": "integer", "float": "number", "int or float": "number", "None": None}
JSON_TYPES: Final = ("integer", "number", "string", "boolean", "array", "object")


def tool_of(spec: Mapping[str, Json]) -> dict[str, Json]:
    """A Tool from the description of a function; a type that is none of JSON's admits anything."""
    parameters = spec.get("parameters", spec.get("query_parameters"))
    types = {name: TYPES.get(str(p.get("type")), p.get("type")) for name, p in parameters.items()}
    schemas = {name: {"type": type_} if type_ in JSON_TYPES else {} for name, type_ in types.items()}
    return {
        "description": spec["description"],
        "properties": {"_activity": {"const": spec["name"]}, "_outputPath": {"type": "string"}, **schemas},
        "required": [name for name, p in parameters.items() if p.get("required") is True],
    }


def request_of(row: Mapping[str, Json], specs: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """A gold sequence as a Request."""
    plan: list[dict[str, Json]] = []
    for call in row["output"]:
        arguments = {name: _value(value, plan) for name, value in call["arguments"].items()}
        label = call.get("label", "answer").strip("$")
        plan.append({"_tool": call["name"], **arguments, "_outputPath": f"†state.{label}"})
    known = {spec["name"]: tool_of(spec) for spec in specs}
    known["var_result"] = {"properties": {"_activity": {"const": "answer"}, "_outputPath": {"type": "string"}}}
    names = {call["_tool"] for call in plan}
    tools = {"type": "tool", "tool": {name: known[name] for name in names - {"compute"}}}
    shipped = [{"type": "tool", "tool": "compute"}] if "compute" in names else []
    return {"context": [tools, *shipped, {"type": "plan", "plan": plan}]}


def _value(value: Json, plan: list[dict[str, Json]]) -> Json:
    if isinstance(value, list):
        return [_value(part, plan) for part in value]
    if isinstance(value, dict):
        return {name: _value(part, plan) for name, part in value.items()}
    uses = list(REFERENCE.finditer(value)) if isinstance(value, str) else []
    if not uses:
        return value
    paths = [re.sub(r"\.(\w+(?: \w+)+)", r'["\1"]', use[2]) for use in uses]  # a name with a space stands in brackets
    references = [f"†state.{use[1]}{path}" for use, path in zip(uses, paths, strict=True)]
    if uses[0].group() == value:
        return references[0]
    texts, names, out = iter(references), iter("abcd"), f"†state.computed{len(plan)}"
    if not ARITHMETIC.fullmatch(REFERENCE.sub("", value)):
        return REFERENCE.sub(lambda _: f"†{{{next(texts)}}}", value)
    code = REFERENCE.sub(lambda _: next(names), value)
    plan.append({"_tool": "compute", "code": code, **dict(zip("abcd", references, strict=False)), "_outputPath": out})
    return out


def loader(folder: Path) -> Loader:
    """Finds a function of the data set by its name."""
    files: Mapping[str, str] = json.loads((folder / "func_file_map.json").read_text("utf-8"))
    basic = (folder / "basic_functions.py").read_text("utf-8")

    def load(name: str) -> Callable[..., Json]:
        file = "basic_functions.py" if f"def {name}(" in basic else files[name]
        return runpy.run_path(str(folder / file))[name]

    return load


def answer_of(row: Mapping[str, Json], request: Mapping[str, Json], load: Loader) -> Json:
    """What the last Call yields, or the error of the run."""
    outputs = {spec["name"]: next(iter(spec["output_parameters"])) for spec in row["tools"]}

    def answer(name: str, call: Mapping[str, Json]) -> Json:
        return {outputs[name]: load(name)(*(value for key, value in call.items() if not key.startswith("_")))}

    results = {call["name"]: partial(answer, call["name"]) for call in row["output"]}
    try:
        result = rehearse(validate_request(request), Script(results)).result
    except (TypeError, ValueError) as error:  # a function that returns no JSON
        return {"error": str(error)}
    last = row["output"][-1]["label"].strip("$")
    return {"error": result["errors"]} if result["errors"] else next(iter(result["state"][last].values()))


def is_gold(answer: Json, gold: Json) -> bool:
    """As the data set's own scorer compares: a float is rounded to the digits of the gold answer."""
    is_float = isinstance(answer, float) and isinstance(gold, float)
    return bool((round(answer, len(str(gold).partition(".")[2])) if is_float else answer) == gold)


def _row(table: Table, name: str, rows: Sequence[Json], specs: Sequence[Json], load: Loader | None) -> list[Json]:
    """A row of the table; what is not as the data set has it joins ``raw``."""
    counts = Counter[str]()
    for number, row in enumerate(rows, 1):
        request, problems, answer = request_of(row, specs or row["tools"]), [], None
        try:
            validate_request(request, SHIPPED)
        except InvalidRequest as error:
            problems = [problem for problem in error.problems if problem.fatal]
        counts[problems[0].code if problems else "valid"] += 1
        if load and not problems:
            answer = answer_of(row, request, load)
            counts["gold"] += is_gold(answer, row["gold_answer"])
        if problems or (load and not is_gold(answer, row["gold_answer"])):
            table.raw.append({"in": name, "row": number, "answer": answer, "problems": [p.text() for p in problems]})
    calls, refused = sum(len(row["output"]) for row in rows), (counts["schemaMismatch"], counts["unknownReference"])
    return [name, len(rows), calls, counts["valid"], *refused, counts["gold"] if load else None]


def run(paths: Sequence[Path]) -> Iterator[Table]:
    """One table: a row for each part of the data set."""
    table = Table("gold sequences as plans", COLUMNS, note=NOTE)
    old, new = paths[0] / "data_v1", paths[0] / "data_v2"
    for name in ("executable/executable", "non-executable/non-executable-glaive", "non-executable/non-executable-sgd"):
        rows, specs = (json.loads((old / f"{name}-{part}.json").read_text("utf-8")) for part in ("data", "spec"))
        table.rows.append(_row(table, f"version 1, {name.rpartition('/')[2]}", rows, specs, None))
    for file in [*new.glob("*.jsonl"), *paths[1:]]:
        rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        table.rows.append(_row(table, f"version 2, {file.stem}", rows, (), loader(new / "executable_functions")))
    yield table
