"""The part of kustomize that deploy/kubernetes uses: no ``kustomize`` and no cluster is at hand where the tests run.

Resources, components, generated ConfigMaps (with their own names, not hashed), JSON patches that add and remove,
strategic merges of maps and of lists by ``name``, images. Labels, namespaces and suffixes only rename: they are
left out.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Final

import yaml

Json = Any
Objects = dict[tuple[str, str], Json]
# What this file does, and what it leaves out knowingly
KEYS: Final = {"apiVersion", "kind", "resources", "components", "configMapGenerator", "patches", "images",
               "labels", "namespace", "nameSuffix"}  # fmt: skip


def build(folder: Path) -> Objects:
    """The objects that a folder describes, by kind and name."""
    objects: Objects = {}
    _apply(folder.resolve(), objects)
    return objects


def _apply(folder: Path, objects: Objects) -> None:
    settings = yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))
    unknown = set(settings) - KEYS
    assert not unknown, f"{folder}: {unknown}"
    for entry in settings.get("resources", []):
        path = folder / entry
        if path.is_dir():
            _apply(path.resolve(), objects)
        else:
            loaded = yaml.safe_load(path.read_text("utf-8"))
            key = loaded["kind"], loaded["metadata"]["name"]
            assert key not in objects, f"two objects are {key}"
            objects[key] = loaded
    for entry in settings.get("configMapGenerator", []):
        _generate(folder, entry, objects)
    for entry in settings.get("components", []):
        _apply((folder / entry).resolve(), objects)
    for patch in settings.get("patches", []):
        _patch(folder, patch, objects)
    for image in settings.get("images", []):
        _set_image(image, objects)


def _generate(folder: Path, entry: Json, objects: Objects) -> None:
    data = dict(literal.split("=", 1) for literal in entry.get("literals", []))
    data |= {Path(name).name: (folder / name).read_text("utf-8") for name in entry.get("files", [])}
    key = "ConfigMap", entry["name"]
    assert (key in objects) == (entry.get("behavior") == "merge"), f"{key}: {entry.get('behavior')}"
    if key in objects:
        objects[key]["data"] |= data
    else:
        objects[key] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": entry["name"]}, "data": data}


def _patch(folder: Path, patch: Json, objects: Objects) -> None:
    key = patch["target"]["kind"], patch["target"]["name"]
    assert key in objects, f"{folder}: a patch of {key}, which is not there"
    text = patch.get("patch") or (folder / patch["path"]).read_text("utf-8")
    loaded = yaml.safe_load(text)
    if isinstance(loaded, dict):
        objects[key] = merge(objects[key], loaded)
        return
    for step in loaded:
        _step(objects[key], step)


def _step(target: Json, step: Json) -> None:
    *parents, last = step["path"].strip("/").split("/")
    for name in parents:
        target = target[int(name)] if isinstance(target, list) else target[name]
    if step["op"] == "remove":
        del target[int(last) if isinstance(target, list) else last]
    elif step["op"] == "add" and last == "-":
        target.append(step["value"])
    else:
        raise AssertionError(f"not supported here: {step}")


def merge(base: Json, change: Json) -> Json:
    """A strategic merge: maps by key, lists of named things by name, other lists as a whole."""
    if isinstance(base, dict) and isinstance(change, dict):
        return {**base, **{k: merge(base[k], v) if k in base else v for k, v in change.items()}}
    if isinstance(base, list) and isinstance(change, list) and all("name" in item for item in [*base, *change]):
        named = {item["name"]: copy.deepcopy(item) for item in base}
        for item in change:
            named[item["name"]] = merge(named.get(item["name"], {}), item)
        # Mounts of one name at two places are two; the manifests have none
        return list(named.values())
    return change


def _set_image(image: Json, objects: Objects) -> None:
    for (kind, _), found in objects.items():
        for container in found["spec"]["template"]["spec"]["containers"] if kind == "Deployment" else []:
            name, _, tag = container["image"].rpartition(":")
            if name == image["name"]:
                container["image"] = f"{image.get('newName', name)}:{image.get('newTag', tag)}"
