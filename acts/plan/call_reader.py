"""A planned Call, read against its Tool: what it reads, writes and runs.

Only the meta-properties that the Tool's schema declares, with the values it allows,
may stand in a Call (``_instance`` always may). ``_activity`` and ``_options`` are
stripped with a warning before anything is checked: what runs is the Tool's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acts.language.errors import ExpressionError, Problem, format_choices
from acts.language.messages import DATA_TYPES, METHODS
from acts.language.references import MARK, Expression, Path, alternatives, parse, paths, scan
from acts.language.tools import META, TOOL_ONLY, Tool
from acts.language.values import ABSENT, Json, pointer, type_name
from acts.plan.planned_call import PlannedCall, ReferenceUse, error_alternative

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class CallReader:
    """Reads the Calls of one plan and collects what is wrong with them."""

    def __init__(self, tools: Mapping[str, Tool], instances: Sequence[str], at: tuple[str | int, ...]) -> None:
        self.tools = tools
        self.instances = frozenset(instances)
        self.known_instances = tuple(instances)
        self.at = at
        self.problems: list[Problem] = []

    def read(self, raw: Json, index: int) -> PlannedCall | None:
        """The Node of a Call, or None when it cannot be understood at all."""
        before = len(self.problems)
        name = raw.get("_tool") if isinstance(raw, dict) else None
        id_ = f"{index + 1}:{name}" if isinstance(name, str) else str(index + 1)
        tool = self._tool(raw, name, index, id_)
        if tool is None or not isinstance(raw, dict):
            return None
        call = self._meta(raw, tool, index, id_)
        outcomes, choices, error = self._writes(call, index, id_)
        delegate = call.get("_delegate")
        node = PlannedCall(
            index=index, id=id_, tool=tool, planned=raw, call=call, pointer=pointer(*self.at, index),
            instance=self._instance(call, index, id_), kind=tool.runs(delegate), delegate=delegate,
            reads=self._reads(call, index, id_), scopes=self._scopes(call, index, id_),
            outcomes=outcomes, result_outcome_count=choices, error=error, method=call.get("_outputMethod", "set"),
        )  # fmt: skip
        self._parameters(node)
        self._output(node)
        return node if not any(p.fatal for p in self.problems[before:]) else None

    def say(self, code: str, message: str, index: int, id_: str, *at: str | int, hint: str | None = None,
            severity: str = "error") -> None:  # fmt: skip
        """Report a problem of one Call; ``at`` leads on from the Call."""
        self.problems.append(Problem(code, message, pointer(*self.at, index, *at), id_, hint, severity))

    def _tool(self, raw: Json, name: Json, index: int, id_: str) -> Tool | None:
        if not isinstance(raw, dict):
            self.say("invalidCall", f"a Call is an object with _tool, not {type_name(raw)}", index, id_)
        elif not isinstance(name, str):
            self.say(
                "invalidCall",
                f"_tool is the name of a tool, not {type_name(raw.get('_tool', ABSENT))}",
                index,
                id_,
                "_tool",
            )
        elif name not in self.tools:
            found = f'unknown tool "{name}" in call {index + 1}; known: {format_choices(self.tools)}'
            self.say(
                "unknownTool", found, index, id_, "_tool", hint="add a tool message to the context that defines it"
            )
        else:
            return self.tools[name]
        return None

    def _meta(self, raw: dict[str, Any], tool: Tool, index: int, id_: str) -> dict[str, Any]:
        """The Call with constants applied, what is the Tool's business stripped."""
        call = dict(raw)
        for key in TOOL_ONLY:
            if key in call:
                del call[key]
                text = f"{key} is decided by the tool and was ignored"
                self.say("ignoredMeta", text, index, id_, key, severity="warning")
        for key in [k for k in call if k.startswith("_") and k not in ("_tool", "_instance")]:
            self._allowed(call, key, tool, index, id_)
        for key, value in tool.consts.items():
            if key not in TOOL_ONLY and key != "_tool":
                call.setdefault(key, value)
        for key in tool.required_meta:
            if key not in call:
                self.say("schemaMismatch", f'tool "{tool.name}" requires {key}', index, id_, key)
        return call

    def _allowed(self, call: dict[str, Any], key: str, tool: Tool, index: int, id_: str) -> None:
        if key not in META:
            self.say("forbiddenMeta", f'unknown meta-property "{key}"; known: {", ".join(META)}', index, id_, key,
                     hint="names that begin with _ are reserved")  # fmt: skip
            return
        if key not in tool.meta:
            declared = format_choices(k for k in tool.meta if k not in ("_tool", *TOOL_ONLY))
            text = f'tool "{tool.name}" does not allow {key}; it declares: {declared}'
            self.say("forbiddenMeta", text, index, id_, key, hint=f"add {key} to the tool's properties to allow it")
            return
        if key == "_output":
            return
        defects = tool.meta_checks[key].defects(call[key])
        for at, text in defects:
            self.say("forbiddenMeta", f'{key} of tool "{tool.name}": {text}', index, id_, key, *at)
        if defects:
            del call[key]  # one problem is enough for it
            return
        wanted = {"_outputMethod": METHODS}.get(key)
        if wanted and call[key] not in wanted:
            self.say("forbiddenMeta", f"{key} {call[key]!r}; allowed: {', '.join(wanted)}", index, id_, key)
            call[key] = "set"

    def _instance(self, call: dict[str, Any], index: int, id_: str) -> str | None:
        given = call.get("_instance")
        if given is None:
            return None
        if not isinstance(given, str) or given not in self.instances:
            text = f"unknown instance {given!r}; known: {format_choices(self.known_instances)}"
            self.say("unknownInstance", text, index, id_, "_instance",
                     hint="an instance is defined by a data-like message with that _instance")  # fmt: skip
            return None
        return given

    def _expression(self, text: Json, index: int, id_: str, *at: str | int) -> Expression | None:
        if not isinstance(text, str):
            self.say("invalidExpression", f"an expression is a string, not {type_name(text)}", index, id_, *at)
            return None
        try:
            tree = parse(text)
            alternatives(tree)
        except ExpressionError as error:
            self.say("invalidExpression", f"{error} in {text!r}", index, id_, *at,
                     hint=f'a string that shall begin with {MARK} as it stands is written "{MARK}{MARK}…"')  # fmt: skip
            return None
        return tree

    def _reads(self, call: dict[str, Any], index: int, id_: str) -> tuple[ReferenceUse, ...]:
        out = []
        for key, value in call.items():
            if key in META:
                continue
            for at, text in scan(value, key):
                tree = self._expression(text, index, id_, *at)
                if tree is not None:
                    out.append(ReferenceUse(at, text, tree, paths(tree)))
        return tuple(out)

    def _scopes(self, call: dict[str, Any], index: int, id_: str) -> tuple[Path, ...]:
        given = call.get("_scopes", [])
        if not isinstance(given, list):
            self.say(
                "forbiddenMeta", f"_scopes is a list of kinds and paths, not {type_name(given)}", index, id_, "_scopes"
            )
            return ()
        out = []
        for i, item in enumerate(given):
            text = item if not isinstance(item, str) or item.startswith(MARK) else MARK + item
            tree = self._expression(text, index, id_, "_scopes", i)
            if isinstance(tree, Path):
                out.append(tree)
            elif tree is not None:
                self.say("invalidExpression", f"a scope is one kind or path, not {item!r}", index, id_, "_scopes", i)
        return tuple(dict.fromkeys(out))

    def _writes(
        self, call: dict[str, Any], index: int, id_: str
    ) -> tuple[tuple[tuple[Path, ...], ...], int, int | None]:
        outcomes: tuple[tuple[Path, ...], ...] = ()
        if "_outputPath" in call:
            tree = self._expression(call["_outputPath"], index, id_, "_outputPath")
            outcomes = alternatives(tree) if tree is not None else ()
            self._names_only(call["_outputPath"], outcomes, index, id_)
        choices, error = len(outcomes), error_alternative(outcomes)
        if "_errorPath" in call:
            tree = self._expression(call["_errorPath"], index, id_, "_errorPath")
            own = alternatives(tree) if tree is not None else ()
            self._names_only(call["_errorPath"], own, index, id_, "_errorPath")
            if len(own) > 1:
                self.say("invalidExpression", "_errorPath is one place, without ||", index, id_, "_errorPath")
            elif own and set(own[0]) in [set(o) for o in outcomes]:
                error = [set(o) for o in outcomes].index(set(own[0]))
            elif own:
                outcomes, error = (*outcomes, own[0]), len(outcomes)
        return outcomes, choices, error

    def _names_only(
        self, text: Json, outcomes: tuple[tuple[Path, ...], ...], index: int, id_: str, key: str = "_outputPath"
    ) -> None:
        for path in dict.fromkeys(p for o in outcomes for p in o):
            if path.kind in ("system", "text", "tool", "plan", "error"):
                why = f"{path} would write {path.kind} messages; a Call writes data-like kinds only"
                hint = f"the kinds are {', '.join(DATA_TYPES)} or names of your own"
                self.say("forbiddenWrite", why, index, id_, key, hint=hint)
        for one, other in ((a, b) for o in outcomes for i, a in enumerate(o) for b in o[i + 1 :] if a.overlaps(b)):
            self.say(
                "invalidExpression", f"{one} and {other} lie in each other; one value cannot be both", index, id_, key
            )
        if isinstance(text, str) and "[" in text:
            self.say("invalidExpression", "an output path is made of names, without brackets", index, id_, key)

    def _parameters(self, node: PlannedCall) -> None:
        for at, text in node.tool.parameters.open_defects(node.parameters):
            where = f'"{".".join(str(t) for t in at)}" of ' if at else ""
            self.say("schemaMismatch", f'{where}tool "{node.tool.name}": {text}', node.index, node.id, *at)

    def _output(self, node: PlannedCall) -> None:
        if "_output" not in node.call:
            return
        if node.kind != "latent":
            what = "an Activity" if node.kind == "activity" else "a delegate"
            del node.call["_output"]
            self.say("ignoredMeta", f"_output comes from {what} and was ignored", node.index, node.id, "_output",
                     severity="warning")  # fmt: skip
            return
        if node.branches:
            self.say("forbiddenMeta", "_output cannot be given while _outputPath leaves a choice open", node.index,
                     node.id, "_output", hint="name the one path that was chosen")  # fmt: skip
        if node.tool.output_check is not None:
            for at, text in node.tool.output_check.defects(node.call["_output"]):
                self.say(
                    "schemaMismatch", f'_output of tool "{node.tool.name}": {text}', node.index, node.id, "_output", *at
                )
