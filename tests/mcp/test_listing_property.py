"""Whatever a server lists: tools are read or refused, and what is read can be recorded, checked and shown."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from acts.activities.mcp.server_tools import McpServerConfig, read_listing
from acts.language.messages import read_request
from acts.language.strict_json import write_json
from acts.language.tools import read_tools
from acts.planner.answer_schema import compose_solution_schema

CONFIG = McpServerConfig(name="s", command="x")
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.floats(),
    st.text(st.characters(), max_size=5),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.floats(), max_size=2),
)
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=4)
NAMES = st.sampled_from(["a", "b", "title", "_id", "_activity", "_output", "$ref", "", "†"])
META = ("_activity", "_delegate", "_options", "_approval", "_tool", "_scopes", "_outputPath", "x-mcp", "x-hints")
SCHEMAS: st.SearchStrategy[Any] = st.deferred(lambda: OBJECTS | st.booleans())
PARTS = st.dictionaries(NAMES, SCHEMAS, max_size=3)
KINDS = {
    "type": st.sampled_from(["object", "string", "number", "array", ["string", "null"]]),
    "required": st.lists(NAMES, max_size=2),
    "enum": st.lists(SCALARS | st.floats(), min_size=1, max_size=2),
    "const": SCALARS | st.floats(),
    "pattern": st.sampled_from(["^a", "(?=a)b", "[", "(a+)+$"]),
    "$ref": st.sampled_from(["#", "#/$defs/a", "#/definitions/a", "#/properties/a", "http://x/y", "#/none"]),
    "description": st.text(max_size=9),
    "minimum": st.floats(),
    "exclusiveMinimum": st.booleans(),
    "dependencies": st.dictionaries(NAMES, st.lists(NAMES, max_size=2) | SCHEMAS, max_size=2),
    **dict.fromkeys(("properties", "$defs", "definitions", "patternProperties"), PARTS),
    **dict.fromkeys(("anyOf", "allOf", "oneOf", "prefixItems"), st.lists(SCHEMAS, min_size=1, max_size=2)),
    **dict.fromkeys(
        ("items", "additionalItems", "additionalProperties", "not"), SCHEMAS | st.lists(SCHEMAS, max_size=2)
    ),
    **dict.fromkeys(META, st.text(max_size=3) | st.booleans()),
}


@st.composite
def schema_objects(draw: st.DrawFn) -> dict[str, Any]:
    """A schema of some keywords, mostly of the kind that they have."""
    keys = draw(st.lists(st.sampled_from(list(KINDS)), max_size=4, unique=True))
    return {key: draw(JUNK if draw(st.integers(0, 19)) == 0 else KINDS[key]) for key in keys}


OBJECTS = schema_objects()
PARAMETERS = st.builds(lambda properties, more: {"type": "object", "properties": properties, **more}, PARTS, OBJECTS)
HINTS = st.none() | st.dictionaries(st.sampled_from(["readOnlyHint", "destructiveHint", "idempotentHint"]), SCALARS)
TOOLS = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b", "c", "c d", "†"]), "inputSchema": PARAMETERS | JUNK},
    optional={"outputSchema": OBJECTS | JUNK, "annotations": HINTS | JUNK, "description": JUNK, "execution": JUNK},
)


@given(st.lists(TOOLS, max_size=4))
def test_any_list_is_read(listed: list[dict[str, Any]]) -> None:
    listing = read_listing(CONFIG, listed)
    assert not listing.tools.keys() & listing.refused.keys()
    schemas = dict(listing.tools)
    write_json(schemas)
    context = [{"type": "tool", "tool": name} for name in schemas]
    tools = read_tools(read_request({"context": context}), schemas, lambda _: False)
    assert [p for p in tools.problems if p.fatal] == []
    for tool in tools.by_name.values():
        assert tool.activity == "mcp.s"
        assert tool.consts.keys() <= {"_activity", "_tool", "_options", "_approval"}
    write_json(compose_solution_schema(tools.by_name, None))
