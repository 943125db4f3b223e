"""NESTFUL's gold sequences of nested calls as plans: how many are valid, and how many yield the gold answer.

``$var1.output$`` becomes the reference ``†state.var1.output``, inside a text ``†{…}``; arithmetic in an argument, a Call
of ``compute``. Where the data set has its functions, they answer the Calls in a rehearsal; else the plan is validated
with its schemas of arguments and results.

    python -m benchmarks.evidence nestful PATH [FILE …]

PATH: a checkout of github.com/TathagataChakraborti/NESTFUL (a copy of IBM/NESTFUL); the figures are of commit 93bab322.
FILE: tasks of version 2 in JSON Lines. ``data_v2/nestful_data.jsonl`` (1,861) is above 4 MiB and was not at hand: the
figures are of 200 of its tasks, ``experiments/nestful_mtgrpo_minimal/data/splits/nestful_dev.jsonl`` of
github.com/MartinSasinka/Tool-R0, commit fdf8e579. The functions of the data set run in this process: look at them first.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

from acts.language.errors import InvalidRequest
from acts.plan.validate import ValidatedPlan, validate_request
from acts.testing.rehearsal import Script, rehearse
from benchmarks.tables import Table

Json = Any

REFERENCE: Final = re.compile(r"\$(var_?\d+)((?:\.[^$]+?|\[\d+\])*)(?:\$|$)")
ARITHMETIC: Final = re.compile(r"[\s\d.+*/()x-]+")
COLUMNS: Final = ["", "sequences", "calls", "valid plans", "as by hand", "gold answer", "gold answer by hand"]
NOTE: Final = (
    "By hand: the functions called one after another, as the data set's scorer does. Two that fail alike are alike. A dash: the "
    "data set has no functions, and the plans were not run."
)
TYPES: Final = {"int": "integer", "integer": "integer", "float": "number", "number": "number", "int or float": "number",
                "string": "string", "boolean": "boolean", "array": "array", "object": "object"}  # fmt: skip


def schema_of(parameter: Mapping[str, Json]) -> Json:
    """The JSON Schema of a parameter; a type that is none of JSON's admits anything."""
    name = TYPES.get(str(parameter.get("type")))
    return {"description": parameter.get("description", ""), **({} if name is None else {"type": name})}


def tool_of(spec: Mapping[str, Json]) -> dict[str, Json]:
    """A Tool from the data set's description of a function."""
    parameters = spec.get("parameters", spec.get("query_parameters"))
    return {
        "type": "object",
        "description": spec["description"],
        "properties": {
            "_activity": {"const": spec["name"]}, "_outputPath": {"type": "string"},
            **{name: schema_of(parameter) for name, parameter in parameters.items()},
        },
        "required": [name for name, p in parameters.items() if p.get("required") is True],
    }  # fmt: skip


class Sequenced:
    """A gold sequence as a Request; ``plan`` are its Calls, one more for each argument with arithmetic."""

    def __init__(self, row: Mapping[str, Json], specs: Mapping[str, Mapping[str, Json]]) -> None:
        self.plan: list[dict[str, Json]] = []
        for call in row["output"]:
            arguments = {name: self._value(value) for name, value in call["arguments"].items()}
            label = call.get("label", "answer").strip("$")
            self.plan.append({"_tool": call["name"], **arguments, "_outputPath": f"†state.{label}"})
        names = dict.fromkeys(call["_tool"] for call in self.plan)
        answer = {"type": "object", "properties": {"_activity": {"const": "answer"}, "_outputPath": {"type": "string"}}}
        self.tools = {name: tool_of(specs[name]) for name in names if name in specs}
        known = {"var_result": answer, **self.tools}
        shipped = [{"type": "tool", "tool": "compute"}] if "compute" in names else []
        tools = [{"type": "tool", "tool": {name: known[name] for name in names if name in known}}, *shipped]
        self.request = {"context": [*tools, {"type": "plan", "plan": self.plan}]}

    def _value(self, value: Json) -> Json:
        if isinstance(value, (list, dict)):
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            new = {key: self._value(part) for key, part in pairs}
            return new if isinstance(value, dict) else list(new.values())
        if not isinstance(value, str) or not (uses := list(REFERENCE.finditer(value))):
            return value
        references = [_path(use) for use in uses]
        if len(uses) == 1 and uses[0].group() == value:
            return references[0]
        if ARITHMETIC.fullmatch(REFERENCE.sub("", value)):
            names = iter("abcdef")
            code = REFERENCE.sub(lambda _: next(names), value)
            out = f"†state.computed{len(self.plan)}"
            self.plan.append({"_tool": "compute", "code": code, **dict(zip("abcdef", references, strict=False)), "_outputPath": out})
            return out
        texts = iter(references)
        return REFERENCE.sub(lambda _: f"†{{{next(texts)}}}", value)


def _path(use: re.Match[str]) -> str:
    parts = re.sub(r"\.([^.\[]*[^\w.\[][^.\[]*)", lambda part: f"[{json.dumps(part[1])}]", use[2])
    return f"†state.{use[1]}{parts}"


def _functions(folder: Path) -> Callable[[str], Callable[..., Json]]:
    files: Mapping[str, str] = json.loads((folder / "func_file_map.json").read_text("utf-8"))

    def load(name: str) -> Callable[..., Json]:
        function = None
        for file in ("basic_functions.py", files.get(name)):
            spec = file and spec_from_file_location("nestful_function", folder / file)
            if spec and spec.loader and function is None:
                spec.loader.exec_module(module := module_from_spec(spec))
                function = getattr(module, name, None)
        if function is None:
            raise LookupError(name)
        return function

    return load


def _answer(function: Callable[..., Json], output: str, call: Mapping[str, Json]) -> Json:
    return {output: function(*(value for name, value in call.items() if not name.startswith("_")))}


def by_plan(row: Mapping[str, Json], prepared: ValidatedPlan, load: Callable[[str], Callable[..., Json]]) -> Json:
    """The answer of the plan: what its last Call yields. Raises where a Call fails."""
    outputs = {spec["name"]: next(iter(spec["output_parameters"])) for spec in row["tools"]}
    results = {name: partial(_answer, load(name), outputs[name]) for name in {call["name"] for call in row["output"]}}
    result = rehearse(prepared, Script(results)).result
    if result["status"] != "completed":
        raise RuntimeError(result["errors"][0]["message"])
    return next(iter(result["state"][row["output"][-1]["label"].strip("$")].values()))


def by_hand(row: Mapping[str, Json], load: Callable[[str], Callable[..., Json]]) -> Json:
    """The answer as the data set's own scorer computes it."""
    values: dict[str, Json] = {}
    for call in row["output"]:
        parts = call["arguments"].values()
        arguments = [values[p.strip("$").split(".")[0]] if isinstance(p, str) and p.startswith("$var") else p for p in parts]
        values[call["label"].strip("$")] = load(call["name"])(*arguments)
    return values[row["output"][-1]["label"].strip("$")]


def outcome(answer: Callable[[], Json], gold: Json) -> tuple[Json, bool]:
    """What it yields, as JSON, and whether that is the gold answer, as the data set's scorer compares. None: it fails."""
    random.seed(1)
    try:
        value = json.loads(json.dumps(answer()))
    except Exception:  # noqa: BLE001 - whatever a function of the data set raises
        return None, False
    rounded = round(value, len(str(gold).partition(".")[2])) if isinstance(value, float) and isinstance(gold, float) else value
    return value, bool(rounded == gold)


def _row(name: str, rows: Sequence[Json], specs: Iterable[Json], load: Callable[[str], Callable[..., Json]] | None) -> tuple[list[Json], list[Json]]:
    """A row of the table, and what is not as it should be."""
    shared = {spec["name"]: spec for spec in specs}
    valid = alike = gold = gold_by_hand = 0
    odd: list[Json] = []
    for row in rows:
        sequence = Sequenced(row, shared or {spec["name"]: spec for spec in row["tools"]})
        try:
            prepared = validate_request(sequence.request)
        except InvalidRequest as error:
            odd.append({"input": row["input"], "problems": [problem.text() for problem in error.problems]})
            continue
        valid += 1
        if load is not None:
            ours, is_gold = outcome(partial(by_plan, row, prepared, load), row["gold_answer"])
            hand, is_hand_gold = outcome(partial(by_hand, row, load), row["gold_answer"])
            alike, gold, gold_by_hand = alike + (ours == hand), gold + is_gold, gold_by_hand + is_hand_gold
            if ours != hand:
                odd.append({"input": row["input"], "answer": ours, "by hand": hand})
    figures = [alike, gold, gold_by_hand] if load else [None, None, None]
    return [name, len(rows), sum(len(row["output"]) for row in rows), valid, *figures], odd


def run(paths: Sequence[Path], _rounds: int | None = None) -> Iterator[Table]:
    """One table: a row for each part of the data set."""
    table = Table("gold sequences as plans", COLUMNS, note=NOTE)
    old = paths[0] / "data_v1"
    for name in ("executable/executable", "non-executable/non-executable-glaive", "non-executable/non-executable-sgd"):
        rows, specs = (json.loads((old / f"{name}-{part}.json").read_text("utf-8")) for part in ("data", "spec"))
        row, odd = _row(name.split("/")[1], rows, specs, None)
        table.rows.append(row)
        table.raw += odd
    load = _functions(paths[0] / "data_v2" / "executable_functions")
    for file in [*(paths[0] / "data_v2").glob("*.jsonl"), *paths[1:]]:
        rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        row, odd = _row(f"version 2, {file.name}", rows, (), load)
        table.rows.append(row)
        table.raw += odd
    yield table
