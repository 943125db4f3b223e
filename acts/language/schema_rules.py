"""The keywords of JSON Schema 2020-12 as rules over values: what each finds wrong, in words.

A rule takes an ``Evaluation``, a value of the type that its keyword is about, and the depth so far; it returns
defects, or None. Every look costs a step of the evaluation's meter.

In a plan or a dry run parts of a value may be unknown. ``UNKNOWN`` fits everything but ``false``; of ``UNKNOWN_TEXT``
only the type is known. Keywords that look at a whole value (``const``, ``not`` …) say nothing of one with an unknown
part, and ``oneOf`` then needs only one alternative that fits.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from acts.language import schema_part_rules as parts
from acts.language.errors import brief, truncate
from acts.language.schema_defects import Defects, Rule, defect_of
from acts.language.values import UNKNOWN_TEXT, Json

if TYPE_CHECKING:
    from acts.language.schema_evaluation import Evaluation
    from acts.language.schema_graph import Node

# Characters of the members of an enum that an error lists
_MAX_CHOICES_TEXT: Final = 160


# -- any value -------------------------------------------------------------------


def _is_number(value: Json) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_HAS_TYPE: Final[dict[str, Callable[[Json], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str) or value is UNKNOWN_TEXT,
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "number": _is_number,
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
}


def _type(_node: Node, argument: Any) -> Rule:
    names = argument if isinstance(argument, list) else [argument]
    listed = ", ".join(repr(n) for n in names)
    checks = [_HAS_TYPE[name] for name in names]

    def rule(_: Evaluation, value: Json, __: int) -> Defects | None:
        for has_type in checks:
            if has_type(value):
                return None
        return defect_of(f"{'a template' if value is UNKNOWN_TEXT else brief(value)} is not of type {listed}")

    return rule


def _enum(_node: Node, argument: Any) -> Rule:
    scalars = {_scalar_key(v) for v in argument if not isinstance(v, (dict, list))}
    containers = [v for v in argument if isinstance(v, (dict, list))]
    has_text = any(isinstance(v, str) for v in argument)
    text = truncate(brief(argument, _MAX_CHOICES_TEXT), _MAX_CHOICES_TEXT)

    def rule(evaluation: Evaluation, value: Json, _: int) -> Defects | None:
        if evaluation.is_unknown(value):
            fits = has_text if value is UNKNOWN_TEXT else True
        elif isinstance(value, (dict, list)):
            fits = any(evaluation.are_equal(value, option) for option in containers)
        else:
            fits = _scalar_key(value) in scalars
        return (
            None
            if fits
            else defect_of(f"{'a template' if value is UNKNOWN_TEXT else brief(value)} is not one of {text}")
        )

    return rule


def _const(_node: Node, argument: Any) -> Rule:
    def rule(evaluation: Evaluation, value: Json, _: int) -> Defects | None:
        if evaluation.is_unknown(value):
            fits = isinstance(argument, str) if value is UNKNOWN_TEXT else True
        else:
            fits = evaluation.are_equal(value, argument)
        return None if fits else defect_of(f"{brief(argument)} was expected")

    return rule


def _scalar_key(value: Json) -> tuple[bool, Json]:
    """Equal for equal JSON values: true is not 1, and 1.0 is."""
    return isinstance(value, bool), value


# -- numbers ---------------------------------------------------------------------


def _bound(text: str, breaks: Callable[[Any, Any], bool]) -> Callable[[Node, Any], Rule]:
    def build(_node: Node, argument: Any) -> Rule:
        def rule(_: Evaluation, value: Json, __: int) -> Defects | None:
            return defect_of(f"{brief(value)} is {text} of {brief(argument)}") if breaks(value, argument) else None

        return rule

    return build


def _multiple_of(_node: Node, argument: Any) -> Rule:
    step = Fraction(repr(argument))

    def rule(evaluation: Evaluation, value: Json, _: int) -> Defects | None:
        evaluation.meter.spend(5)  # fractions of up to 308 digits
        if (Fraction(repr(value)) / step).denominator == 1:
            return None
        return defect_of(f"{brief(value)} is not a multiple of {brief(argument)}")

    return rule


# -- strings ---------------------------------------------------------------------


def _length(unit: str, word: str, breaks: Callable[[int, Any], bool]) -> Callable[[Node, Any], Rule]:
    """The rule of a least or a greatest length."""

    def build(_node: Node, argument: Any) -> Rule:
        bound = f"{'at most' if word == 'long' else 'at least'} {brief(argument)} {unit}"

        def rule(_: Evaluation, value: Json, __: int) -> Defects | None:
            size = len(value)
            return (
                defect_of(f"{brief(value)} is too {word}: {bound}, and it has {size:,}")
                if breaks(size, argument)
                else None
            )

        return rule

    return build


def _pattern(node: Node, argument: Any) -> Rule:
    pattern = node.patterns[argument]

    def rule(evaluation: Evaluation, value: Json, _: int) -> Defects | None:
        evaluation.meter.spend(pattern.steps(len(value)))
        return None if pattern.matches(value) else defect_of(f"{brief(value)} does not match {brief(argument)}")

    return rule


# -- combinations ----------------------------------------------------------------


def _all_of(node: Node, _argument: Any) -> Rule:
    def rule(evaluation: Evaluation, value: Json, depth: int) -> Defects | None:
        defects: Defects = []
        for sub in node.sub["allOf"]:
            defects += evaluation.visit(sub, value, depth)
            if len(defects) >= evaluation.cap:
                break
        return defects

    return rule


def _any_of(node: Node, _argument: Any) -> Rule:
    def rule(evaluation: Evaluation, value: Json, depth: int) -> Defects | None:
        nearest = _Nearest()
        for sub in node.sub["anyOf"]:
            if nearest.fits(evaluation.visit(sub, value, depth)):
                return None
        return nearest.defects(value)

    return rule


def _one_of(node: Node, _argument: Any) -> Rule:
    def rule(evaluation: Evaluation, value: Json, depth: int) -> Defects | None:
        nearest, is_unknown, fitting = _Nearest(), evaluation.is_unknown(value), 0
        for sub in node.sub["oneOf"]:
            fitting += nearest.fits(evaluation.visit(sub, value, depth))
            if fitting and is_unknown:
                return None
            if fitting > 1:
                return defect_of(f"{brief(value)} fits several of the alternatives of oneOf; exactly one is allowed")
        return None if fitting else nearest.defects(value)

    return rule


class _Nearest:
    """The deepest defect of the alternatives that do not fit: of the one that goes deepest, if that is one only."""

    def __init__(self) -> None:
        self._deepest: Defects = []

    def fits(self, defects: Defects) -> bool:
        """True when the alternative with these defects has none."""
        if defects:
            defect = max(defects, key=lambda d: len(d[0]))
            depth = len(self._deepest[0][0]) if self._deepest else -1
            if len(defect[0]) >= depth:
                self._deepest = [*(self._deepest if len(defect[0]) == depth else ()), defect][:2]
        return not defects

    def defects(self, value: Json) -> Defects:
        """What to report when none fits."""
        return self._deepest if len(self._deepest) == 1 else defect_of(f"{brief(value)} fits none of the alternatives")


def _not(node: Node, argument: Any) -> Rule:
    def rule(evaluation: Evaluation, value: Json, depth: int) -> Defects | None:
        if evaluation.is_unknown(value) or not evaluation.is_valid(node.sub["not"], value, depth):
            return None
        return defect_of(f"{brief(value)} should not be valid under {brief(argument)}")

    return rule


def _if(node: Node, _argument: Any) -> Rule:
    def rule(evaluation: Evaluation, value: Json, depth: int) -> Defects | None:
        if evaluation.is_unknown(value):
            return None
        branch = node.sub.get("then" if evaluation.is_valid(node.sub["if"], value, depth) else "else")
        return None if branch is None else evaluation.visit(branch, value, depth)

    return rule


def _reference(key: str) -> Callable[[Node, Any], Rule]:
    def build(node: Node, _argument: Any) -> Rule:
        def rule(evaluation: Evaluation, value: Json, depth: int) -> Defects | None:
            return evaluation.visit(node.sub[key], value, depth)

        return rule

    return build


_TOO_LONG: Final = ("long", lambda size, bound: size > bound)
_TOO_SHORT: Final = ("short", lambda size, bound: size < bound)
BUILDERS: Final[dict[str, tuple[str, Callable[[Node, Any], Rule]]]] = {
    "type": ("any", _type),
    "const": ("any", _const),
    "enum": ("any", _enum),
    "required": ("object", parts.required),
    "minimum": ("number", _bound("less than the minimum", lambda value, bound: value < bound)),
    "maximum": ("number", _bound("greater than the maximum", lambda value, bound: value > bound)),
    "exclusiveMinimum": ("number", _bound("less than or equal to the minimum", lambda value, bound: value <= bound)),
    "exclusiveMaximum": ("number", _bound("greater than or equal to the maximum", lambda value, bound: value >= bound)),
    "multipleOf": ("number", _multiple_of),
    "minLength": ("string", _length("characters", *_TOO_SHORT)),
    "maxLength": ("string", _length("characters", *_TOO_LONG)),
    "pattern": ("string", _pattern),
    "minItems": ("array", _length("items", *_TOO_SHORT)),
    "maxItems": ("array", _length("items", *_TOO_LONG)),
    "minProperties": ("object", _length("properties", *_TOO_SHORT)),
    "maxProperties": ("object", _length("properties", *_TOO_LONG)),
    "dependentRequired": ("object", parts.dependent_required),
    "additionalProperties": ("object", parts.additional_properties),
    "propertyNames": ("object", parts.property_names),
    "properties": ("object", parts.properties),
    "patternProperties": ("object", parts.pattern_properties),
    "prefixItems": ("array", parts.prefix_items),
    "items": ("array", parts.items),
    "uniqueItems": ("array", parts.unique_items),
    "contains": ("array", parts.contains),
    "$ref": ("any", _reference("$ref")),
    "$dynamicRef": ("any", _reference("$dynamicRef")),
    "allOf": ("any", _all_of),
    "anyOf": ("any", _any_of),
    "oneOf": ("any", _one_of),
    "not": ("any", _not),
    "if": ("any", _if),
    "dependentSchemas": ("object", parts.dependent_schemas),
    "unevaluatedProperties": ("object", parts.unevaluated_properties),
    "unevaluatedItems": ("array", parts.unevaluated_items),
}
"""By keyword: the type of the values that it is about, and what makes its rule; cheap ones first."""

# All that can be said of a text that is not known yet
_OF_UNKNOWN_TEXT: Final = frozenset({"type", "const", "enum", "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf"})
TYPES: Final = ("object", "array", "string", "number", "other", "unknown text")


def build_rules(node: Node) -> dict[str, tuple[Rule, ...]]:
    """The rules of a node, by the type of a value."""
    schema = node.schema if isinstance(node.schema, dict) else {}
    present = [(k, about, build(node, schema[k])) for k, (about, build) in BUILDERS.items() if k in schema]
    rules = {type_: tuple(r for _, about, r in present if about in ("any", type_)) for type_ in TYPES}
    rules["unknown text"] = tuple(r for key, _, r in present if key in _OF_UNKNOWN_TEXT)
    return rules
