"""Whether a result or a status is that of a run over a set: its ``instances`` are counts then, and no names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def set_counts(report: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """``{total, completed, failed, running}`` of a run over a set; None for any other report."""
    instances = (report or {}).get("instances")
    if not isinstance(instances, dict) or not isinstance(instances.get("completed"), int):
        return None
    return instances


def named_instances(report: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The instances of a report by name; none for a set."""
    instances = (report or {}).get("instances")
    return instances if isinstance(instances, dict) and set_counts(report) is None else {}
