"""The payload of an ``InstanceInput``: its own half as readable JSON, the half shared with its siblings compressed.

The parent's and the child's history each record both halves, so their size matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.strict_json import read_json, write_json
from acts.tree.compression import compress, decompress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Keys of a payload's metadata: the type of the record, and the shared half
TYPE_KEY: Final = "acts"
SHARED_KEY: Final = "acts-shared"


def split_instance_input(data: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """The JSON of an ``InstanceInput`` as its own half, ``{instances, context, instance?}``, and the shared bytes.

    ``instance`` is that of the child's position, unless it is the only one of ``instances``.
    """
    request, position = data["request"], data["position"]
    context = request["context"]
    first = next((i for i, m in enumerate(context) if m.get("_instance") is not None), len(context) - 1)
    own: dict[str, Any] = {"instances": data["instances"], "context": context[first:-1]}
    if position.get("instance") != _only(data["instances"]):
        own["instance"] = position.get("instance")
    shared = {k: v for k, v in data.items() if k != "instances"}
    shared["position"] = {k: v for k, v in position.items() if k != "instance"}
    shared["request"] = {**request, "context": [*context[:first], context[-1]]}
    return own, compress(write_json(shared))


def join_instance_input(own: Mapping[str, Any], shared_bytes: bytes) -> dict[str, Any]:
    """The inverse of ``split_instance_input``.

    Raises:
        ValueError, KeyError: the halves have another form.
    """
    shared = read_json(decompress(shared_bytes))
    *common, plan = shared["request"]["context"]
    request = {**shared["request"], "context": [*common, *own["context"], plan]}
    instance = own.get("instance", _only(own["instances"]))
    position = shared["position"] if instance is None else {**shared["position"], "instance": instance}
    return {**shared, "request": request, "position": position, "instances": own["instances"]}


def _only(instances: Sequence[str]) -> str | None:
    return instances[0] if len(instances) == 1 else None
