"""Instances are in one class exactly if they have values at the same paths, whatever was read of them before."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from acts.language.messages import Data
from acts.language.references import Path
from acts.language.values import ABSENT, UNKNOWN, UNKNOWN_TEXT
from acts.plan.context_log import Log
from acts.plan.instance_classes import classify_instances

NAMES = st.sampled_from("ab0")
INSTANCES = "xyz"
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, 1, 2, "text", True, UNKNOWN, UNKNOWN_TEXT]),
    lambda parts: st.lists(parts, max_size=2) | st.dictionaries(NAMES, parts, max_size=2),
    max_leaves=4,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=2)
INSTANCE = st.sampled_from([None, *INSTANCES])


def at_root(payload: Any, instance: str | None) -> Data:
    return Data(0, "data", {}, payload=payload, instance=instance)


def at_path(names: list[str], value: Any, method: str, instance: str | None) -> Data:
    payload = value
    for name in reversed(names):
        payload = {name: payload}
    return Data(0, "data", {}, payload=payload, instance=instance, path=Path("data", tuple(names)), method=method)


AT_ROOT = st.builds(at_root, OBJECTS | st.sampled_from([ABSENT, UNKNOWN]), INSTANCE)
METHODS = st.sampled_from(["set", "merge", "push", "concat", "assign"])
AT_PATHS = st.builds(at_path, st.lists(NAMES, min_size=1, max_size=2), VALUES, METHODS, INSTANCE)
PATHS = st.builds(lambda names: Path("data", tuple(names)), st.lists(NAMES, max_size=3))


@given(
    st.lists(AT_ROOT | AT_PATHS, max_size=8),
    st.lists(PATHS, min_size=1, max_size=5, unique=True),
    st.sets(st.sampled_from(INSTANCES)),
)
def test_a_class_has_values_at_the_same_paths(messages: list[Data], paths: list[Path], looked_at: set[str]) -> None:
    log = Log([*messages, *(at_root({}, name) for name in INSTANCES)])
    for name in looked_at:
        log.view_of(name)
    classes = classify_instances(INSTANCES, paths, log)
    assert sorted(name for alike in classes for name in alike.instances) == [*INSTANCES]
    for alike in classes:
        for name in alike.instances:
            assert alike.present == {path for path in paths if log.has_initially(path, name)}
    assert len({alike.present for alike in classes}) == len(classes)


def test_what_cannot_be_known_is_not_taken_for_nothing() -> None:
    """A schema alone, a set whose rows are elsewhere, and a text that a dry run cannot know."""
    payloads = {"x": ABSENT, "y": UNKNOWN, "z": {"a": UNKNOWN_TEXT}, "v": {"a": UNKNOWN}}
    deep = Path("data", ("a", "b"))
    classes = classify_instances([*payloads], [deep], Log([at_root(payload, id_) for id_, payload in payloads.items()]))
    assert [(alike.instances, alike.present) for alike in classes] == [
        (("x", "z"), frozenset()), (("y", "v"), frozenset({deep}))
    ]  # fmt: skip
