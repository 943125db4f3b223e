"""deploy/kubernetes: what kustomize would build fits Kubernetes' schemas, the worker's settings and itself.

No cluster and no kustomize is at hand: docs/deploy.md says what was not run. ``tests/unit/kustomize.py`` builds.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from temporalio.envconfig import ClientConfig

from tests.unit.kustomize import Objects, build
from tests.unit.test_deploy import ROOT, dockerfile_stages, only, settings_in_the_sources

KUBERNETES = ROOT / "deploy" / "kubernetes"
SCHEMAS = json.loads((Path(__file__).parent / "schemas" / "kubernetes-1.34.json").read_text("utf-8"))
ENTRIES = [*KUBERNETES.glob("overlays/*"), KUBERNETES / "base"]
WORKER = ("Deployment", "acts-worker")
Json = Any


@pytest.fixture(params=sorted(ENTRIES), ids=lambda path: path.name)
def objects(request: pytest.FixtureRequest) -> Objects:
    return build(request.param)


@pytest.fixture
def base() -> Objects:
    return build(KUBERNETES / "base")


def problems(found: Json) -> list[str]:
    validator = Draft202012Validator({**SCHEMAS["kinds"][found["kind"]], "$defs": SCHEMAS["$defs"]})
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(found)]


def pod(objects: Objects) -> Json:
    return objects[WORKER]["spec"]["template"]["spec"]


def container(objects: Objects) -> Json:
    (only_one,) = pod(objects)["containers"]
    return only_one


def settings(objects: Objects) -> dict[str, str]:
    """The variables of the worker, as Kubernetes would set them; those of the Secret are not known."""
    found: dict[str, str] = {}
    for source in container(objects)["envFrom"]:
        if "configMapRef" in source:
            found |= objects["ConfigMap", source["configMapRef"]["name"]]["data"]
    return found | {item["name"]: item["value"] for item in container(objects).get("env", [])}


def test_every_object_fits_the_schema_of_its_kind(objects: Objects) -> None:
    for (kind, name), found in objects.items():
        if kind != "ScaledObject":  # KEDA's own kind: see below
            assert problems(found) == [], f"{kind} {name}"


def test_a_misspelt_field_would_be_noticed(base: Objects) -> None:
    container(base)["securityContext"]["readOnlyRootFileSystem"] = True
    container(base)["ports"][0]["containerPort"] = "9464"
    assert len(problems(base[WORKER])) == 2


def test_every_file_is_part_of_something_that_is_built() -> None:
    kustomizations = list(KUBERNETES.rglob("kustomization.yaml"))
    texts = {path: path.read_text("utf-8") for path in kustomizations}
    for file in KUBERNETES.rglob("*"):
        if file.is_file() and file.name != "kustomization.yaml":
            assert file.name in texts[file.parent / "kustomization.yaml"]
    for component in KUBERNETES.glob("components/*"):
        assert any(f"components/{component.name}" in text for text in texts.values())


def test_every_setting_is_one_that_the_worker_reads(objects: Objects) -> None:
    ours = {name for name in settings(objects) if name.startswith("ACTS_")}
    assert ours <= settings_in_the_sources()
    temporal = {name for name in settings(objects) if name.startswith("TEMPORAL_")}
    assert temporal <= {"TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "TEMPORAL_CONFIG_FILE", "TEMPORAL_PROFILE"}
    assert ours | temporal == set(settings(objects))


def test_a_worker_starts_with_the_settings(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    from worker_settings import Settings

    for name, value in settings(objects).items():
        monkeypatch.setenv(name, value)
    read = Settings.from_environment()
    assert read.task_queue == "acts"
    assert read.shutdown_seconds < pod(objects)["terminationGracePeriodSeconds"]
    assert (read.deployment is not None) == ("ACTS_BUILD_ID" in settings(objects))
    config = ClientConfig.load_client_connect_config()
    assert config["target_host"] == settings(objects)["TEMPORAL_ADDRESS"]


def test_ports_of_settings_probes_and_policies_are_those_of_the_container(objects: Objects) -> None:
    ports = {port["name"]: port["containerPort"] for port in container(objects)["ports"]}
    values = settings(objects)
    assert values["ACTS_METRICS"] == f"0.0.0.0:{ports['metrics']}"
    assert values["ACTS_HEALTH"] == f"0.0.0.0:{ports['health']}"
    paths = {name: container(objects)[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert paths == {
        "startup": {"path": "/live", "port": "health"}, "liveness": {"path": "/live", "port": "health"},
        "readiness": {"path": "/ready", "port": "health"},
    }  # fmt: skip
    annotations = objects[WORKER]["spec"]["template"]["metadata"]["annotations"]
    assert int(annotations["prometheus.io/port"]) == ports["metrics"]
    (rule,) = objects["NetworkPolicy", "acts-worker"]["spec"]["ingress"]
    assert [port["port"] for port in rule["ports"]] == ["metrics"]


def test_the_pod_runs_as_the_user_of_the_image_and_writes_to_tmp_only(objects: Objects) -> None:
    user, group = map(int, only(dockerfile_stages()[-1], "USER").split(":"))
    context = pod(objects)["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["runAsNonRoot"]) == (user, group, True)
    own = container(objects)["securityContext"]
    assert own == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    writable = [mount["mountPath"] for mount in container(objects)["volumeMounts"] if not mount.get("readOnly")]
    assert writable == ["/tmp"]  # noqa: S108 - a path in the pod
    assert pod(objects)["automountServiceAccountToken"] is False
    assert "memory" in container(objects)["resources"]["limits"]


def test_what_selects_the_pods_selects_these(objects: Objects) -> None:
    labels = objects[WORKER]["spec"]["template"]["metadata"]["labels"]
    assert objects[WORKER]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    for key, field in ((("PodDisruptionBudget", "acts-worker"), "selector"),
                       (("NetworkPolicy", "acts-worker"), "podSelector")):  # fmt: skip
        assert objects[key]["spec"][field]["matchLabels"].items() <= labels.items()


def test_keda_scales_the_deployment_by_the_queue_that_the_worker_serves() -> None:
    objects = build(KUBERNETES / "overlays" / "example")
    scaled = objects["ScaledObject", "acts-worker"]["spec"]
    assert scaled["scaleTargetRef"] == {"name": "acts-worker"}
    assert "replicas" not in objects[WORKER]["spec"]  # or each `apply` would undo what KEDA did
    assert 2 <= scaled["minReplicaCount"] < scaled["maxReplicaCount"]  # one is left when one is drained
    (trigger,) = scaled["triggers"]
    metadata, values = trigger["metadata"], settings(objects)
    assert values[metadata["endpointFromEnv"]]
    assert (metadata["taskQueue"], metadata["namespace"]) == (values["ACTS_TASK_QUEUE"], values["TEMPORAL_NAMESPACE"])
    assert all(isinstance(value, str) for value in metadata.values())  # KEDA refuses numbers here
    assert set(metadata) <= {"endpointFromEnv", "namespace", "taskQueue", "queueTypes", "targetQueueSize",
                             "activationTargetQueueSize"}  # fmt: skip


def test_a_profile_of_temporal_cloud_is_what_the_worker_connects_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    parts = {"resources": [str(KUBERNETES / "base")], "components": [str(KUBERNETES / "components/temporal-cloud")]}
    (overlay / "kustomization.yaml").write_text(json.dumps(parts), "utf-8")
    objects = build(overlay)
    assert problems(objects[WORKER]) == []
    values = settings(objects)
    file, mount = Path(values["TEMPORAL_CONFIG_FILE"]), container(objects)["volumeMounts"][-1]
    volume = next(v for v in pod(objects)["volumes"] if v["name"] == mount["name"])
    assert str(file.parent) == mount["mountPath"]
    profile = objects["ConfigMap", volume["configMap"]["name"]]["data"][file.name]
    (tmp_path / file.name).write_text(profile, "utf-8")
    for name in ("TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE"):  # of other tests; they win over a profile
        monkeypatch.delenv(name, raising=False)
    for name, value in {**values, "TEMPORAL_CONFIG_FILE": str(tmp_path / file.name), "TEMPORAL_API_KEY": "key"}.items():
        monkeypatch.setenv(name, value)
    config = ClientConfig.load_client_connect_config()
    expected = tomllib.loads(profile)["profile"]["cloud"]
    assert (config["target_host"], config["namespace"]) == (expected["address"], expected["namespace"])
    assert (config["api_key"], config["tls"]) == ("key", True)


def test_no_file_has_a_secret() -> None:
    for file in KUBERNETES.rglob("*.*"):
        text = file.read_text("utf-8") if file.is_file() else ""
        assert not re.search(r"kind: Secret\b|(KEY|PASSWORD|TOKEN)=[^…\s]|api_key\s*=", text), file
