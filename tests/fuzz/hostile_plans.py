"""Plans that are heavy for their size: chains, conditions, templates, lists of elements. Each shape is one function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.fuzz import hostile_json
from tests.fuzz.hostile_json import Source

Json = Any

METHODS = ("set", "push", "concat", "merge", "assign")


def plan(source: Source, tools: list[str], instances: list[str]) -> list[Json]:
    """The Calls of a plan of one of the shapes below."""
    make = source.pick(PLANS if source.slips(0.5) else VALID_PLANS)
    calls = make(source, source.pick([t for t in tools[:5] if t != "fixed"] or ["t"]))
    if instances and source.chance(0.4):
        calls = [{**c, "_instance": instances[i % len(instances)]} if i % 3 else c for i, c in enumerate(calls)]
    return hostile_json.mutate(source, calls) if source.slips(0.3) else calls


def _chain(s: Source, tool: str) -> list[Json]:
    n = s.count(60)
    calls = [{"_tool": tool, "x": f"†state.c{i - 1}" if i else 1, "_outputPath": f"†state.c{i}"} for i in range(n)]
    return calls[::-1] if s.chance(0.3) else calls


def _readers_of_all(s: Source, tool: str) -> list[Json]:
    return [{"_tool": tool, "x": s.pick(("†state", "†state.x", "†user", "†state.x || †user")), "_outputPath": f"†{s.pick(('state', 'out'))}.c{i}"}
            for i in range(s.count(60))]  # fmt: skip


def _branches(s: Source, tool: str) -> list[Json]:
    width = s.pick((2, 8, 64))
    each = " || ".join(f"†state.b{{0}}o{j}" for j in range(width))
    n = s.count(len(each) + 40)
    return [
        {"_tool": tool, "x": f"†state.b{i - 1}o0 || †state.b{i - 1}o1" if i else 1, "_outputPath": each.format(i)}
        for i in range(n)
    ]


def _wide_expressions(s: Source, tool: str) -> list[Json]:
    operator = s.pick((" && ", " || ", " && (†state.x || †state.s) && ")[: 2 if s.is_careful else 3])
    path = s.pick(("†state.x", "†state", "†state.s", "†state.x[0]", '†state["x"]'))
    width = s.count(len(path) + len(operator), 64 if s.is_careful and "||" in operator else 60_000)
    text = (
        operator.join([path] * width)
        if s.is_careful or s.chance(0.5)
        else operator.join(f"{path}{i}" for i in range(width))
    )
    key = s.pick(("x", "_outputPath", "_errorPath"))
    return [
        {"_tool": tool, "_outputPath": "†state.r", key: text}
        for _ in range(s.count(len(text)) if s.left > len(text) else 1)
    ]


def _deep_paths(s: Source, tool: str) -> list[Json]:
    depth = s.pick((5, 30, 59))
    tail = ".".join("n" * s.pick((1, 5)) for _ in range(depth - 1))
    return [
        {"_tool": tool, "x": f"†state.r{i - 1}.{tail}" if i else 1, "_outputPath": f"†state.r{i}.{tail}"}
        for i in range(s.count(2 * len(tail) + 60))
    ]


def _own_names(s: Source, tool: str) -> list[Json]:
    """Every name of every path is another one."""
    depth = s.pick((5, 30, 58))
    return [
        {"_tool": tool, "x": 1, "_outputPath": "†state." + ".".join(f"{i}n{j}" for j in range(depth))}
        for i in range(s.count(8 * depth + 40))
    ]


def _writers_of_one(s: Source, tool: str) -> list[Json]:
    method = s.pick(METHODS)
    return [{"_tool": tool, "x": s.pick((1, "†state.l")), "_outputPath": s.pick(("†state.l", "†state", "†state.l.a")), "_outputMethod": method}
            for _ in range(s.count(80))]  # fmt: skip


def _literal_data(s: Source, tool: str) -> list[Json]:
    each = hostile_json.value(s)
    if s.chance(0.5):
        each = {"data": each, "one": "†state.x"}
    return [{"_tool": tool, "x": each, "_outputPath": "†state.r"} for _ in range(s.random.randrange(1, 4))]


def _marked_text(s: Source, tool: str) -> list[Json]:
    marked = s.pick(
        ("†state.x", "††x", "†state.x || †state.s", "†", "†(", "†{state.x}", "††{x}")[: 7 if s.slips(0.5) else 3]
    )
    shape = s.pick((lambda n: [marked] * n, lambda n: {f"k{i}": marked for i in range(n)}, lambda n: marked * n))
    return [{"_tool": tool, "x": shape(s.count(len(marked.encode()) + 6)), "_outputPath": "†state.r"}]


def _wrong_calls(s: Source, tool: str) -> list[Json]:
    wrong = s.pick((5, {}, {"_tool": "nope"}, {"_tool": tool, "_foo": 1}, {"_tool": tool, "_outputPath": 5}, {"_tool": tool, "y" * 30: 1},
                    {"_tool": tool, "x": "†nothing.at.all", "_outputPath": "†state.r"}, {"_tool": tool, "_scopes": 5},
                    {"_tool": tool, "_instance": "nobody"}, {"_tool": tool, "_outputPath": "†state.a && †state.a.b"}, {"_tool": tool, "_output": 1}))  # fmt: skip
    return [wrong] * s.count(len(str(wrong)))


def _scopes(s: Source, tool: str) -> list[Json]:
    scopes = [
        s.pick(("state", "†state.x", f"†state.x{i}", f"†state.x[{i}]", "user")) for i in range(s.count(14, 3_000))
    ]
    return [
        {"_tool": tool, "x": 1, "_scopes": scopes, "_outputPath": f"†state.r{i}"}
        for i in range(s.random.randrange(1, 30))
    ]


def _cycle(s: Source, tool: str) -> list[Json]:
    n = s.count(60)
    return [{"_tool": tool, "x": f"†out.c{(i + 1) % n}", "_outputPath": f"†out.c{i}"} for i in range(n)]


def _detached(s: Source, tool: str) -> list[Json]:
    return [{"_tool": tool, "x": i} for i in range(s.count(24))]


def _conditions(s: Source, tool: str) -> list[Json]:
    """Conditions, long or deep, in a chain or side by side."""
    terms = ("†state.x == 1", "!†state.nothing", "†state.s < 5 && †state.s != null", "†state == †state", "†state.x == †state.x",
             "†state.x != †state", '†state.s == "' + "a" * 300 + '"', '†state.s == [1, {"a": 2}]', "†state.s")  # fmt: skip
    term = s.pick(terms)
    condition = s.pick((" && ", " || ")).join([term] * s.count(len(term) + 4, 120 if s.is_careful else 20_000))
    deep = s.pick((10, 60)) if s.is_careful else 300
    conditions = (condition, "!" * deep + "†state.s", "(" * deep + term + ")" * deep, term)
    text = s.pick(conditions)
    is_chain = s.chance(0.4)
    return [
        {"_tool": tool, "x": s.pick((1, "†state.s")), "_outputPath": f"†state.w{i}",
         "_when": f"†state.w{i - 1} != 3 || {text}" if is_chain and i else text}
        for i in range(s.count(len(text) + 70))
    ]  # fmt: skip


def _wrong_conditions(s: Source, tool: str) -> list[Json]:
    term = s.pick(
        ("†state.x = 1", "!" * 5000, "(" * 300, "†state.x == " + "9" * 5000, "†state.x == 1 == 2", "†item", "[" * 99)
    )
    return [
        {"_tool": tool, "x": 1, "_when": term, "_outputPath": f"†state.w{i}"} for i in range(s.count(len(term) + 40))
    ]


def _templates(s: Source, tool: str) -> list[Json]:
    """Texts with very many expressions, or with large values in them."""
    part = s.pick(
        ("†{state.x}", "†{state.s}", "a†{state.x || state.s}b", "†{state}", "††{†{state.s}}", "†{state.s && state.x} ")
    )
    text = part * s.count(len(part.encode()), 100_000)
    is_chain = s.chance(0.4)
    return [
        {"_tool": tool, "x": f"†{{state.t{i - 1}}}{text}" if is_chain and i else text, "_outputPath": f"†state.t{i}"}
        for i in range(s.count(len(text.encode()) + 60))
    ]


def _repeated_value(s: Source, tool: str) -> list[Json]:
    """One value, put into many places of each Call."""
    reference = s.pick(("†state.x", "†state", "†user", "†state.x || †user"))
    part = [reference] * s.count(len(reference) + 5)
    return [{"_tool": tool, "x": part, "_outputPath": f"†state.v{i}"} for i in range(s.count(len(str(part)) + 60))]


def _elements(s: Source) -> Json:
    lists = ("†state.x", "†state.s", "†state", [1] * s.count(3, 20_000), [{"a": i} for i in range(s.count(10, 10_000))],
             ["†state.x"] * s.count(12, 10_000), ["no †{state.x}"] * s.count(20, 10_000))  # fmt: skip
    return s.pick(lists)


def _each(s: Source, tool: str) -> list[Json]:
    """Calls once per element, side by side or in a chain; parameters with much in them."""
    part = s.pick(
        (
            "†item",
            "†item.a",
            "†item || †state.s",
            "†state.x || †item",
            "no †{index} of †{state.s}",
            "†{item}",
            "†state.x",
        )
    )
    shape = s.pick(
        (lambda n: part, lambda n: [part] * n, lambda n: part * n if "{" in part else part, lambda n: {"a": part})
    )
    x, is_chain = shape(s.count(len(part.encode()) + 4, 10_000)), s.chance(0.5)
    elements = _elements(s)
    when = {"_when": s.pick(("†state.s > 0", "†state.x == †state"))} if s.chance(0.3) else {}
    calls = min(s.count(len(str(x)) + 80), 200 if is_chain else 10**6)
    return [
        {
            "_tool": tool,
            "_each": f"†state.e{i - 1}" if is_chain and i else elements,
            "x": x,
            "_outputPath": f"†state.e{i}",
            **when,
        }
        for i in range(calls)
    ]


def _growing(s: Source, tool: str) -> list[Json]:
    """One value that each Call makes longer, and that each of them reads in another way."""
    path = s.pick(("†state.l", "†state.g.k{i}", "†state.k{i}"))
    read = s.pick(("†state.l", "†state.g", "†state", "†state.l || †state.g"))
    fields = s.pick(
        (
            {"x": read},
            {"x": [read, read]},
            {"x": f"a †{{{read[1:]}}}"},
            {"_when": f"{read} == {read}", "x": 1},
            {"_scopes": [read.partition(" ")[0]], "x": 1},
            {"_each": read.partition(" ")[0], "x": "†item"},
        )
    )
    method = s.pick(METHODS) if path == "†state.l" else "set"
    return [
        {"_tool": tool, **(fields if i else {"x": 1}), "_outputPath": path.format(i=i), "_outputMethod": method}
        for i in range(s.count(110))
    ]


def _by_constants(s: Source, tool: str) -> list[Json]:
    """Small Calls of a Tool that fixes much for each of them."""
    return [{"_tool": "fixed", "x": s.pick((i, "†state.x")), **({"_outputPath": "†state.o"} if s.slips(0.2) else {})}
            for i in range(s.count(24))]  # fmt: skip


VALID_PLANS: tuple[Callable[[Source, str], list[Json]], ...] = (
    _chain, _readers_of_all, _branches, _wide_expressions, _deep_paths, _own_names, _writers_of_one, _literal_data,
    _marked_text, _scopes, _detached, _conditions, _conditions, _templates, _templates, _repeated_value, _each, _each,
    _by_constants, _growing, _growing,
)  # fmt: skip
PLANS = (*VALID_PLANS, _wrong_calls, _cycle, _wrong_conditions)
