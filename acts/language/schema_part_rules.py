"""The keywords of JSON Schema about lists and objects and their parts, as rules; see ``schema_rules``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import brief, find_similar, format_choices, truncate
from acts.language.schema_defects import Defects, Rule, defect_of, defects_below
from acts.language.values import Json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acts.language.schema_evaluation import Evaluation
    from acts.language.schema_graph import Node

# Names of properties that an error lists
MAX_NAMES: Final = 20


# -- lists -----------------------------------------------------------------------


def items(node: Node, _argument: Any) -> Rule:
    item = node.sub["items"]
    start = len(node.sub.get("prefixItems", ()))

    def rule(evaluation: Evaluation, value: Json, depth: int) -> Defects | None:
        if item.schema is True:
            return None
        defects: Defects = []
        for index in range(start, len(value)):
            defects += defects_below(index, evaluation.visit(item, value[index], depth))
            if len(defects) >= evaluation.cap:
                break
        return defects

    return rule


def prefix_items(node: Node, _argument: Any) -> Rule:
    items = node.sub["prefixItems"]

    def rule(evaluation: Evaluation, value: Json, depth: int) -> Defects | None:
        defects: Defects = []
        for index, (item, part) in enumerate(zip(items, value, strict=False)):
            defects += defects_below(index, evaluation.visit(item, part, depth))
        return defects

    return rule


def unique_items(_node: Node, argument: Any) -> Rule:
    def rule(evaluation: Evaluation, value: Json, _: int) -> Defects | None:
        if argument is not True or evaluation.is_unknown(value) or len(value) < 2:  # noqa: PLR2004 - a pair
            return None
        seen: set[Any] = set()
        for part in value:
            key = evaluation.key_of(part)
            if key in seen:
                return defect_of(f"{brief(value)} has an item twice: {brief(part)}")
            seen.add(key)
        return None

    return rule


def contains(node: Node, _argument: Any) -> Rule:
    schema: Any = node.schema
    item, least, most = node.sub["contains"], schema.get("minContains", 1), schema.get("maxContains")

    def rule(evaluation: Evaluation, value: Json, depth: int) -> Defects | None:
        if evaluation.is_unknown(value):
            return None
        count = 0
        for part in value:
            count += evaluation.is_valid(item, part, depth)
            if most is None and count >= least:
                return None
        if count >= least and (most is None or count <= most):
            return None
        allowed = f"at least {brief(least)}" if count < least else f"at most {brief(most)}"
        return defect_of(f"{brief(value)} has {count:,} items that fit contains, and {allowed} must")

    return rule


# -- objects ---------------------------------------------------------------------


def properties(node: Node, _argument: Any) -> Rule:
    properties: dict[str, Node] = node.sub["properties"]

    def rule(evaluation: Evaluation, value: Json, depth: int) -> Defects | None:
        defects: Defects = []
        few, many = (value, properties) if len(value) < len(properties) else (properties, value)
        for key in few:
            if key in many and (found := evaluation.visit(properties[key], value[key], depth)):
                defects += defects_below(key, found)
        return defects

    return rule


def pattern_properties(node: Node, _argument: Any) -> Rule:
    patterns = [(node.patterns[text], sub) for text, sub in node.sub["patternProperties"].items()]

    def rule(evaluation: Evaluation, value: Json, depth: int) -> Defects | None:
        defects: Defects = []
        for key, part in value.items():
            for pattern, sub in patterns:
                evaluation.meter.spend(pattern.steps(len(key)))
                if pattern.matches(key):
                    defects += defects_below(key, evaluation.visit(sub, part, depth))
            if len(defects) >= evaluation.cap:
                break
        return defects

    return rule


def additional_properties(node: Node, _argument: Any) -> Rule:
    schema: Any = node.schema
    rest, properties = node.sub["additionalProperties"], schema.get("properties", {})
    patterns = [node.patterns[text] for text in schema.get("patternProperties", ())]

    def is_extra(evaluation: Evaluation, key: str) -> bool:
        if key in properties:
            return False
        evaluation.meter.spend(sum(pattern.steps(len(key)) for pattern in patterns))
        return not any(pattern.matches(key) for pattern in patterns)

    def rule(evaluation: Evaluation, value: Json, depth: int) -> Defects | None:
        if rest.schema is True:
            return None
        extra = [key for key in value if is_extra(evaluation, key)]
        if rest.schema is False:
            return _unknown_keys(extra, properties, [p.text for p in patterns]) if extra else None
        defects: Defects = []
        for key in extra:
            defects += defects_below(key, evaluation.visit(rest, value[key], depth))
            if len(defects) >= evaluation.cap:
                break
        return defects

    return rule


def _unknown_keys(extra: Sequence[str], properties: dict[str, Any], patterns: Sequence[str]) -> Defects:
    """The keys that a closed object does not allow, and those that it does."""
    names = ", ".join(f'"{truncate(key, 40)}"' for key in extra[:MAX_NAMES])
    if patterns:
        verb = "matches none" if len(extra) == 1 else "match none"
        return defect_of(
            truncate(f"{names} {verb} of the patterns {', '.join(brief(p) for p in patterns[:MAX_NAMES])}", 240)
        )
    text = f"{names} {'is' if len(extra) == 1 else 'are'} not allowed; allowed: {format_choices(properties)}"
    similar = find_similar(extra[0], properties)
    return defect_of(f'{text}; did you mean "{similar}"?' if similar is not None else text)


def property_names(node: Node, _argument: Any) -> Rule:
    name = node.sub["propertyNames"]

    def rule(evaluation: Evaluation, value: Json, depth: int) -> Defects | None:
        defects: Defects = []
        for key in value:
            defects += [((), text) for _, text in evaluation.visit(name, key, depth)]
            if len(defects) >= evaluation.cap:
                break
        return defects

    return rule


def required(_node: Node, argument: Any) -> Rule:
    def rule(_: Evaluation, value: Json, __: int) -> Defects | None:
        missing = [key for key in argument if key not in value]
        return [((), f"{brief(key)} is a required property") for key in missing[:MAX_NAMES]] or None

    return rule


def dependent_required(_node: Node, argument: Any) -> Rule:
    def rule(evaluation: Evaluation, value: Json, _: int) -> Defects | None:
        for key in argument:
            if key in value:
                evaluation.meter.spend(len(argument[key]) // 10)
                for needed in argument[key]:
                    if needed not in value:
                        return defect_of(f"{brief(needed)} is required beside {brief(key)}")
        return None

    return rule


def dependent_schemas(node: Node, _argument: Any) -> Rule:
    def rule(evaluation: Evaluation, value: Json, depth: int) -> Defects | None:
        defects: Defects = []
        for key, sub in node.sub["dependentSchemas"].items():
            if key in value:
                defects += evaluation.visit(sub, value, depth)
        return defects

    return rule


# -- what nothing else has looked at ----------------------------------------------


def unevaluated_properties(node: Node, _argument: Any) -> Rule:
    rest = node.sub["unevaluatedProperties"]

    def rule(evaluation: Evaluation, value: Json, depth: int) -> Defects | None:
        if evaluation.is_unknown(value):
            return None
        evaluated = evaluation.evaluated_keys(node, value, depth, itself=False)
        extra = [key for key in value if key not in evaluated]
        if rest.schema is False:
            names = ", ".join(f'"{truncate(key, 40)}"' for key in extra[:MAX_NAMES])
            return defect_of(f"{names} {'is' if len(extra) == 1 else 'are'} not allowed here") if extra else None
        defects: Defects = []
        for key in extra:
            defects += defects_below(key, evaluation.visit(rest, value[key], depth))
        return defects

    return rule


def unevaluated_items(node: Node, _argument: Any) -> Rule:
    rest = node.sub["unevaluatedItems"]

    def rule(evaluation: Evaluation, value: Json, depth: int) -> Defects | None:
        if evaluation.is_unknown(value):
            return None
        evaluated = evaluation.evaluated_indexes(node, value, depth, itself=False)
        extra = [i for i in range(len(value)) if i not in evaluated]
        if rest.schema is False and extra:
            return defect_of(f"{brief(value)} has {len(extra):,} items more than the schema describes")
        defects: Defects = []
        for index in extra:
            defects += defects_below(index, evaluation.visit(rest, value[index], depth))
        return defects

    return rule
