"""Type hints → the schema of a Tool, or an error that says which function, where, and what is allowed."""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, Field
from temporalio.exceptions import ApplicationError
from typing_extensions import TypedDict

import acts
from acts.activities.registry import load
from acts.client.typed_tools import TypedTool, read_docstring
from acts.language.errors import SettingsError
from acts.language.tools import read_tool


class Colour(enum.Enum):
    """Two of them."""

    RED, BLUE = "red", "blue"


class Item(BaseModel):
    """With an alias, as on the wire."""

    name: str = Field(alias="itemName", description="as in the shop")
    count: int = 1


@dataclass
class Place:
    """A dataclass with another in it."""

    item: Item
    day: date


class Row(TypedDict, total=False):
    """A dict of some fields."""

    id: int


def typed(function: Callable[..., Any]) -> TypedTool:
    marked: TypedTool = getattr(function, "__acts_tool__")  # noqa: B009 - the name is that of an attribute of ours
    return marked


HINTS: list[tuple[Any, Any, Any]] = [
    # a type hint, the value of a Call, what the function gets
    (str, "a", "a"),
    (int | None, None, None),
    (float, 1, 1.0),
    (Decimal, "0.10", Decimal("0.10")),
    (date, "2026-01-31", date(2026, 1, 31)),
    (timedelta, "PT30S", timedelta(seconds=30)),
    (UUID, "00000000-0000-0000-0000-000000000001", UUID(int=1)),
    (Colour, "blue", Colour.BLUE),
    (Literal["a", "b"], "a", "a"),
    (Annotated[int, Field(gt=0)], 3, 3),
    (list[Item], [{"itemName": "cup"}], [Item(itemName="cup")]),
    (tuple[int, str], [1, "a"], (1, "a")),
    (dict[str, float], {"a": 1.5}, {"a": 1.5}),
    (Place, {"item": {"itemName": "c"}, "day": "2026-01-31"}, Place(Item(itemName="c"), date(2026, 1, 31))),
    (Row, {"id": 1}, {"id": 1}),
    (Any, [None], [None]),
]


@pytest.mark.parametrize(("hint", "value", "argument"), HINTS, ids=lambda part: str(part)[:40])
def test_a_type_hint_is_a_schema_and_reads_what_fits_it(hint: Any, value: Any, argument: Any) -> None:
    def echo(value: Any) -> Any:
        return value

    echo.__annotations__ = {"value": hint, "return": hint}
    made = typed(acts.tool(echo))
    tool, problems = read_tool("echo", made.schema)
    assert tool is not None
    assert not problems
    assert not tool.parameters.defects({"value": value})
    assert made.decode({"_tool": "echo", "value": value}, []) == {"value": argument}
    result = made.encode(argument)
    assert json.loads(json.dumps(result)) == result
    assert tool.output_check is None or not tool.output_check.defects(result)


UNDO = {"_tool": "forget", "id": "†result.id"}


@acts.tool(
    retry=2,
    timeout="10s",
    read_only=True,
    failures=["gone"],
    secrets={"key": "shop"},
    output_path="†state.x",
    undo=UNDO,
)
def describe(
    item: Annotated[Item, Field(alias="theItem")],
    day: date = date(2026, 1, 31),
    *,
    key: str,
    call: acts.Call,
    context: list[Any],
) -> Row:
    """Describes an item.

    In two paragraphs.

    Args:
        item (Item): what it is,
            and which
        day: the day: that of the order

    Returns:
        a row
    """
    return {"id": len(call.id)}


def test_a_function_says_all_that_a_tool_is_and_stays_a_function() -> None:
    assert describe(Item(itemName="cup"), key="k", call=acts.Call("1234"), context=[]) == {"id": 4}
    schema = typed(describe).schema
    parts = schema["properties"]
    assert schema["description"] == "Describes an item.\n\nIn two paragraphs.\nIt may fail with: gone."
    assert parts["_options"] == {"const": {"timeout": "10s", "retry": {"maxAttempts": 2}}}
    assert parts["theItem"]["description"] == "what it is, and which"
    assert parts["day"] == {
        "type": "string", "format": "date", "default": "2026-01-31", "description": "the day: that of the order",
    }  # fmt: skip
    assert (parts["_outputPath"], parts["_undo"]) == ({"const": "†state.x"}, {"const": UNDO})
    assert parts["key"] == {"const": {"$secret": "shop"}}
    assert "call" not in parts
    assert "context" not in parts
    assert (schema["required"], schema["x-hints"], schema["x-failures"]) == (
        ["theItem"],
        {"readOnly": True},
        {"gone": ""},
    )
    assert parts["theItem"]["properties"]["itemName"]["description"] == "as in the shop"
    assert parts["_output"]["type"] == "object"  # what a model is asked for
    assert "$defs" not in schema


def test_sphinx_names_parameters_too() -> None:
    text = "Sums.\n\n:param int a: the first\n    of two\n:param b: the second\n:returns: c: d"
    assert read_docstring(text) == ("Sums.", {"a": "the first of two", "b": "the second"})


def test_a_result_that_does_not_fit_says_that_the_effect_may_have_happened() -> None:
    with pytest.raises(ApplicationError, match=r"id: .*; the call ran, and its effect may have happened") as error:
        typed(describe).encode({"id": "many"})
    assert (error.value.type, error.value.non_retryable) == ("badResult", True)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ({"day": "2026-01-31"}, '"theItem" is missing'),
        ({"theItem": {"itemName": 3}}, '"theItem": itemName: Input should be a valid string'),
        ({"theItem": {"itemName": "cup"}, "key": "k", "dryRun": True}, '"dryRun" is no parameter'),
    ],
)
def test_a_call_of_another_version_of_the_tool_is_refused_before_anything_happens(call: Any, text: str) -> None:
    with pytest.raises(ApplicationError) as error:
        typed(describe).decode({"_id": "1", "_tool": "describe", **call}, [])
    assert (error.value.type, error.value.non_retryable) == ("SchemaMismatch", True)
    assert f"{text}; its parameters: day, key, theItem" in error.value.message


REFUSED = [
    # what is in the module, and what its error says
    ("@acts.tool\ndef f(a: object()): ...", 'the type hint of parameter "a"'),
    ("@acts.tool\ndef f(a: list[open]): ...", "has no JSON Schema"),
    ("@acts.tool\ndef f(a: 'Later'): ...", "a type hint cannot be read: name 'Later' is not defined"),
    ("@acts.tool\ndef f(a) -> int: ...", 'parameter "a" has no type hint; Any allows every value'),
    ("@acts.tool\ndef f() -> type(f): ...", "name 'f' is not defined"),
    ("@acts.tool\ndef f(a: int = 'x'): ...", "the default of parameter \"a\", 'x', does not fit"),
    ("@acts.tool\ndef f(a: str = None): ...", "write `| None` in its hint"),
    ("@acts.tool\ndef f(call: acts.Call): ...", "they stand after a `*`"),
    ("@acts.tool\ndef f(*, call: dict): ...", "`call: acts.Call`"),
    ("@acts.tool\ndef f(*, key: acts.Call): ...", 'parameter "key"'),
    ("@acts.tool\ndef f(context: list): ...", "they stand after a `*`"),
    ("@acts.tool\ndef f(*args: int): ...", "there is no *args, no **kwargs and no /"),
    ("@acts.tool\ndef f(a: int, /): ...", "there is no *args, no **kwargs and no /"),
    ("@acts.tool\ndef f(_a: int): ...", "names that begin with _"),
    ("@acts.tool\ndef f(): yield", "a tool is a plain function"),
    ("@acts.tool\nclass f: ...", "a tool is a plain function"),
    ("@acts.tool(timeuot=3)\ndef f(): ...", 'no setting "timeuot"; allowed: name, description, timeout'),
    ("@acts.tool(timeout='soon')\ndef f(): ...", "tool \"f\": timeout='soon': a duration is a number of seconds"),
    (
        "class A: ...\n@acts.tool\ndef f(a: A): ...",
        "has no JSON Schema: make its class a dataclass or a pydantic model",
    ),
    ("import json\njson.loads('')", 'refused_tools.py:3: "refused_tools" of ACTS_ACTIVITIES cannot be imported'),
    ("import no_such_module_at_all", "refused_tools.py:2: "),
    ("def f(:", "refused_tools.py:2: "),
    ("@acts.tool(failures='no')\ndef f(): ...", 'failures=["declined"]'),
    ("@acts.tool(secrets={'k': 's'})\ndef f(a: str): ...", 'secrets name "k"; its parameters: a'),
    ("@acts.tool(meta={'_outputpath': True})\ndef f(): ...", 'declares "_outputpath"'),
    ("@acts.tool\ndef f(): ...\n@acts.tool\ndef f(): ...", "each name is of one function"),
    ("@acts.tool(name='f')\ndef g(): ...\n@acts.tool\ndef f(a: int): ...", 'two tools are called "f"'),
    ("@acts.tool(name='f')\ndef g(): ...\n@acts.tool\ndef f(): ...", 'two activities are called "f"'),
    ("TOOLS = {'f': {'properties': {}}}\n@acts.tool\ndef f(): ...", 'two tools are called "f"'),
]


def test_a_folder_has_no_other_tool_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "once_tools.py").write_text("import acts\n@acts.tool\ndef f(): ...\n", "utf-8")
    (tmp_path / "f.json").write_text('{"f": {"properties": {"_activity": {"const": "f"}}}}', "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SettingsError, match=r'two tools are called "f": one is at .*once_tools.py:2, one at'):
        load(["once_tools"], [tmp_path])


@pytest.mark.parametrize(("source", "text"), REFUSED, ids=[text for _, text in REFUSED])
def test_what_cannot_be_a_tool_stops_the_worker_with_the_place(
    source: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "refused_tools.py").write_text(f"import acts\n{source}\n", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "refused_tools", raising=False)
    with pytest.raises(SettingsError) as error:
        load(["refused_tools"], [])
    assert text in str(error.value)
    assert "refused_tools" in str(error.value)


async def test_a_function_without_its_decorator_is_named_where_a_plan_means_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain_tools.py").write_text("def refund(): ...\ndef _own(): ...\n", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = load(["plain_tools"], [])
    assert registry.warnings == (
        "plain_tools brings no tool: nothing in it has @acts.tool or @activity.defn; refund may lack it",
    )
    answer = await registry.look_up({"tools": ["refund", "other"]})
    assert answer["unavailable"] == {"refund": "refund in plain_tools.py:1 has no @acts.tool"}
