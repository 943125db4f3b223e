"""deploy/kubernetes: its files fit Kubernetes' schemas and the settings."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from acts.language import variables
from tests.unit.house.test_deploy import ROOT, dockerfile_stages, only

KUBERNETES = ROOT / "deploy" / "kubernetes"
SCHEMAS = json.loads((Path(__file__).parents[1] / "schemas" / "kubernetes-1.34.json").read_text("utf-8"))
OBJECTS = {
    f"{file.relative_to(KUBERNETES)}:{number}": content
    for file in sorted(KUBERNETES.rglob("*.yaml"))
    if file.name != "kustomization.yaml"
    for number, content in enumerate(yaml.safe_load_all(file.read_text("utf-8")))
}
DEPLOYMENT = OBJECTS["base/deployment.yaml:0"]
POD = DEPLOYMENT["spec"]["template"]["spec"]


def problems(found: Any) -> list[str]:
    validator = Draft202012Validator({**SCHEMAS["kinds"][found["kind"]], "$defs": SCHEMAS["$defs"]})
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(found)]


def test_a_misspelt_field_would_be_noticed() -> None:
    found = json.loads(json.dumps(DEPLOYMENT))
    found["spec"]["template"]["spec"]["containers"][0]["securityContext"]["readOnlyRootFileSystem"] = True
    assert len(problems(found)) == 1


COMPONENTS = [
    "storage-gc", "storage", "keys", "secrets", "sets", "s3-private", "otlp", "monitoring", "keda", "keda-version",
    "temporal-cloud", "keda-cloud",
]  # fmt: skip


def build(folder: Path, *components: str) -> dict[tuple[str, str], Any]:
    """What kustomize makes of the base with components, by kind and name without a suffix of ours."""
    place = os.path.relpath(KUBERNETES, folder)
    content = {
        "resources": [f"{place}/base"], "components": [f"{place}/components/{name}" for name in components],
        "nameSuffix": "-x",
    }  # fmt: skip
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(content), "utf-8")
    command = [str(shutil.which("kubectl")), "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built = [item for item in yaml.safe_load_all(done.stdout) if item]
    return {(item["kind"], item["metadata"]["name"].partition("-x")[0]): item for item in built}


needs_kustomize = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl builds the manifests")


@needs_kustomize
@pytest.mark.parametrize("components", [[], *([name] for name in COMPONENTS[:9]), COMPONENTS], ids=str)
def test_the_base_with_components_is_built_and_fits(components: list[str], tmp_path: Path) -> None:
    built = build(tmp_path, *components)
    for found in built.values():
        if found["kind"] in SCHEMAS["kinds"]:
            assert problems(found) == []
    if ("CronJob", "acts-storage-gc") in built:
        job = built["CronJob", "acts-storage-gc"]["spec"]["jobTemplate"]["spec"]["template"]
        job["spec"]["restartPolicy"] = "Always"
        selector = {"matchLabels": job["metadata"]["labels"]}
        as_deployment = {**DEPLOYMENT, "spec": {"selector": selector, "template": job}}
        assert problems(as_deployment) == [], "its pod is one"


@needs_kustomize
def test_what_a_setting_names_is_mounted(tmp_path: Path) -> None:
    built = build(tmp_path, *(name for name in COMPONENTS if name != "s3-private"))
    settings = built["ConfigMap", "acts-worker"]["data"]
    paths = {n: v.removeprefix("file:") for n, v in settings.items() if v.removeprefix("file:").startswith("/")}
    assert set(paths) == {
        "ACTS_CODEC_KEYS", "ACTS_APPROVERS", "ACTS_SECRETS", "ACTS_STORAGE", "ACTS_DATA", "ACTS_RESULTS"
    }  # fmt: skip
    (worker,) = built["Deployment", "acts-worker"]["spec"]["template"]["spec"]["containers"]
    mounts = {mount["mountPath"] for mount in worker["volumeMounts"]}
    assert all(any(path == place or path.startswith(f"{place}/") for place in mounts) for path in paths.values())
    (clean_up,) = built["CronJob", "acts-storage-gc"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert {paths["ACTS_CODEC_KEYS"], paths["ACTS_STORAGE"], "/etc/temporal"} <= {
        mount["mountPath"] for mount in clean_up["volumeMounts"]
    }


def test_the_rules_of_the_operator_are_those_of_prometheus() -> None:
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text("utf-8"))
    assert OBJECTS["components/monitoring/prometheusrule.yaml:0"]["spec"] == rules


def test_every_setting_is_one_that_the_worker_reads() -> None:
    texts = [file.read_text("utf-8") for file in KUBERNETES.rglob("*.yaml")]
    names = {name for text in texts for name in re.findall(r"\bACTS_[A-Z_]+", text)}
    assert names <= variables.WORKER


def test_the_pod_runs_as_the_user_of_the_image_and_writes_to_tmp_only() -> None:
    user, group = map(int, only(dockerfile_stages()[-1], "USER").split(":"))
    context, (container,) = POD["securityContext"], POD["containers"]
    assert (context["runAsUser"], context["runAsGroup"], context["runAsNonRoot"]) == (user, group, True)
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")] == ["/tmp"]  # noqa: S108 - a path in the pod
    assert POD["automountServiceAccountToken"] is False


def test_no_file_has_a_secret() -> None:
    for file in KUBERNETES.rglob("*.*"):
        text = file.read_text("utf-8") if file.is_file() else ""
        assert not re.search(r"kind: Secret\b|(KEY|PASSWORD|TOKEN)=[^…\s]|api_key\s*=", text), file
