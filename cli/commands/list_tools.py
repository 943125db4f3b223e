"""``acts tools``: the tools that the workers serve, or those that this environment loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.text import Text

from acts.language.errors import format_choices, suggest
from acts.language.tool_hints import hint_words
from acts.language.tools import META, read_tool
from cli.command_errors import EXIT_DONE, command_error, message
from cli.console import clean, console, line_console, print_blocks, print_err, print_json
from cli.render.tables import new_table
from cli.runs import server
from cli.runs.worker_tools import read_worker_tools
from cli.text.preflight import load_registry

_MAX_PARAMETERS: Final = 80
_MAX_DESCRIPTION: Final = 80


async def tools(name: str | None, *, here: bool, as_json: bool) -> int:
    """List the tools, or print the schema of one."""
    if here:
        schemas, activities = load_registry()
        answers: list[dict[str, Any]] = [{"tools": schemas, "activities": sorted(activities)}]
    else:
        answers = await read_worker_tools(await server.connect(), server.task_queue())
    every = {tool: schema for answer in answers for tool, schema in answer["tools"].items()}
    if name is not None:
        print_json(_find(name, every))
        return EXIT_DONE
    if as_json:
        print_json({"taskQueue": server.task_queue(), "workers": answers})
        return EXIT_DONE
    served = sorted({activity for answer in answers for activity in answer["activities"]})
    _print_tools(every, served)
    print_blocks(_differences(answers))
    return EXIT_DONE


def _find(name: str, tools_: Mapping[str, Any]) -> Any:
    if name not in tools_:
        hint = suggest(name, tools_) or f"there are: {format_choices(tools_)}"
        raise command_error(f'there is no tool "{clean(name, 100)}"', hint=hint)
    if tools_[name] is None:
        raise command_error("its schema is left out of the answer, which would be too large", where=clean(name, 100))
    return tools_[name]


def _print_tools(tools_: Mapping[str, Any], activities: Sequence[str]) -> None:
    if not tools_:
        print_err("no tool is registered: a module's TOOLS, a folder of ACTS_TOOLS, or ACTS_MCP")
    table = new_table("tool", "answered by", "parameters", "description")
    own: set[str] = set()
    for name, schema in tools_.items():
        tool = None if schema is None else read_tool(name, schema, served=name in activities)[0]
        if tool is None:
            table.add_row(clean(name, 100))
            continue
        own |= {tool.activity} if tool.activity else set()
        cells = (name, _answerer(tool), _parameters(tool.schema), _description(tool.schema))
        table.add_row(*(Text(clean(cell, 200)) for cell in cells))
    if tools_:
        line_console().print(table)
    others = [name for name in activities if name not in own]
    if others:
        console().print(f"activities without a tool: {clean(format_choices(others, 40))}", style="dim")


def _answerer(tool: Any) -> str:
    """The activity, delegate or model that answers the calls of a tool."""
    queue = f" on {tool.options.taskQueue}" if tool.options.taskQueue else ""
    delegate = tool.consts.get("_delegate")
    if delegate:
        return f"delegate {delegate}"
    return f"activity {tool.activity}{queue}" if tool.activity else "model"


def _parameters(schema: Mapping[str, Any]) -> str:
    """``amount, customer?``: ? marks what a call may leave out."""
    listed, required = schema.get("properties"), schema.get("required")
    needed = required if isinstance(required, list) else []
    names = [name for name in (listed if isinstance(listed, dict) else ()) if name not in META]
    return clean(", ".join(name if name in needed else f"{name}?" for name in names), _MAX_PARAMETERS)


def _description(schema: Mapping[str, Any]) -> str:
    hints = f" ({', '.join(words)})" if (words := hint_words(schema)) else ""
    return clean(schema.get("description") or "", _MAX_DESCRIPTION) + hints


def _differences(answers: Sequence[Mapping[str, Any]]) -> list[Any]:
    """What workers of several versions do not have in common."""
    if len(answers) <= 1:
        return []
    shared = set.intersection(*({*a["tools"], *a["activities"]} for a in answers))
    texts = []
    for answer in answers:
        more = {*answer["tools"], *answer["activities"]} - shared
        texts.append(f"{answer['worker']}" + (f" alone has {format_choices(more)}" if more else ""))
    head = f"workers of {len(answers)} versions serve this queue: {'; '.join(texts)}"
    return [message(head, hint="calls go to any of them; those that lack an activity pass it on", severity="note")]
