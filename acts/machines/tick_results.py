"""What the plans of an agent's ticks came to: their Calls, failures and instances, as the result lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acts.plan.planned_call import PlannedCall

_FAILED: Final = ("failed", "rejected", "cancelled")


class TickResults:
    """``calls`` and ``errors`` of all ticks, ``instances`` by id; ``walking`` are the Calls of the plan under way."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.errors: list[dict[str, Any]] = []
        self.instances: dict[str, dict[str, Any]] = {}
        self.walking: list[dict[str, Any]] = []
        self._nodes: Sequence[PlannedCall] = ()

    def begin(self, nodes: Sequence[PlannedCall], tick: int) -> None:
        """The plan of a tick is walked now: these of its Calls."""
        self._nodes = nodes
        self.walking = [{"id": n.id, "tool": n.tool.name, "state": "pending", "tick": tick} for n in nodes]

    def record(self, result: Mapping[str, Any], tick: int) -> list[dict[str, Any]]:
        """The plan of a tick has ended; returns its failures as the data of error messages."""
        self.walking = []
        details = {e["call"]: e["details"] for e in result.get("errors", ()) if "instance" not in e and "details" in e}
        failures = []
        for call in result["calls"]:
            failure = self._record_call(call, tick, details=details.get(call["id"]))
            failures += [] if failure is None else [failure]
        for id_, item in (result.get("instances") or {}).items():
            failures += [f for call in item["calls"] if (f := self._record_call(call, tick, id_)) is not None]
            self._record_instance(id_, item, tick)
            if item["status"] != "completed" and not any(c["state"] in _FAILED for c in item["calls"]):
                cause = item["errors"][0] if item["errors"] else {"code": item["status"], "message": item["status"]}
                error = {k: cause[k] for k in ("code", "message")}
                failures.append({"call": {"_instance": id_}, "error": error})
        return failures

    def with_full_id(self, record: dict[str, Any]) -> dict[str, Any]:
        """A decision that was made in a tick's plan, with its Call's id in the whole Solution."""
        node = None if "below" in record or record.get("call") is None else self._node(record["call"])
        return record if node is None else {**record, "call": node.id}

    def _node(self, id_: str) -> PlannedCall | None:
        """The Call that is walked under this id; None of one that a person has put there."""
        number, _, tool = id_.partition(":")
        place = int(number) - 1 if number.isdecimal() else len(self._nodes)
        node = self._nodes[place] if 0 <= place < len(self._nodes) else None
        return node if node is not None and node.tool.name == tool else None

    def _record_call(
        self, call: dict[str, Any], tick: int, instance: str | None = None, details: Any = None
    ) -> dict[str, Any] | None:
        """Record one Call; returns its failure, as the model is shown it.

        ``details`` are those of the failure, of which the Call itself may show a part.
        """
        node = self._node(call["id"])
        id_ = call["id"] if node is None else node.id
        own = {} if instance is None else {"instance": instance}
        self.calls.append({**call, "id": id_, "tick": tick, **own})
        if call["state"] not in _FAILED:
            return None
        error = call.get("error") or {"code": call["state"], "message": f"the call was {call['state']}"}
        whole = {} if details is None else {"details": details}
        self.errors.append({"call": id_, "tick": tick, **own, **error, **whole})
        planned = call.get("call") or ({"_tool": call["tool"]} if node is None else node.planned)
        return {"call": planned if instance is None else {**planned, "_instance": instance}, "error": error}

    def _record_instance(self, id_: str, item: Mapping[str, Any], tick: int) -> None:
        """Add what an instance came to in this tick."""
        total = self.instances.setdefault(id_, {"status": "", "calls": [], "errors": []})
        if item["calls"] or item["errors"] or not total["status"]:
            total["status"] = item["status"]
        total["calls"] += [{**c, "tick": tick} for c in item["calls"]]
        total["errors"] += [{**e, "tick": tick} for e in item["errors"]]

    def snapshot(self) -> dict[str, Any]:
        """``{calls, errors, instances}``."""
        return {"calls": self.calls, "errors": self.errors, "instances": self.instances}

    def restore(self, data: Mapping[str, Any]) -> None:
        """Take over a snapshot."""
        self.calls, self.errors = list(data["calls"]), list(data["errors"])
        self.instances = dict(data["instances"])
