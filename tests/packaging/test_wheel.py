"""The wheel in an environment of its own, beside a project with the names that every Temporal project has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from acts.activities.registry import load
from acts.cli.dev.temporal_server import DevServer
from acts.language.errors import SettingsError
from tests.examples.running import started

ROOT = Path(__file__).parents[2]
# A project as people have it: its modules have the names of the engine's rooms
PROJECT = {
    "activities.py": """
        from temporalio import activity

        @activity.defn
        def greet(call, tool, context):
            return f"Hello, {call['name']}!"

        PROPERTIES = {
            "_tool": {"const": "greet"}, "_activity": {"const": "greet"}, "_outputPath": {}, "name": {"type": "string"},
        }
        TOOLS = {"greet": {"type": "object", "properties": PROPERTIES, "required": ["name"]}}
    """,
    "workflows.py": "raise ImportError('the engine has imported the workflows of a user')",
    "worker.py": "raise ImportError('the engine has imported the worker of a user')",
    "cli.py": "raise ImportError('the engine has imported the command line of a user')",
    "sets.py": "raise ImportError('the engine has imported the sets of a user')",
}
PLAN = {
    "context": [
        {"type": "tool", "tool": "greet"},
        {"type": "plan", "plan": [{"_tool": "greet", "name": "Ada", "_outputPath": "†state.greeting"}]},
    ]
}


def without_indent(text: str) -> str:
    lines = text.splitlines()
    return "\n".join(line.removeprefix(" " * 8) for line in lines)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", str(folder), str(ROOT)], check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel and its dependencies, and nothing of the checkout."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True)
    # The dependencies are those of this environment: files in a folder that is only on the path bring no checkout along
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    return folder / "bin"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in PROJECT.items():
        (tmp_path / name).write_text(without_indent(text), "utf-8")
    (tmp_path / "plan.json").write_text(json.dumps(PLAN), "utf-8")
    return tmp_path


def test_the_wheel_has_one_importable_name(wheel: Path) -> None:
    files = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in files if ".dist-info/" not in name} == {"acts"}


@pytest.mark.long
def test_a_plan_runs_beside_a_project_with_the_names_of_our_rooms(
    programs: Path, project: Path, server: DevServer, task_queue: str
) -> None:
    settings = {
        "TEMPORAL_ADDRESS": server.address, "TEMPORAL_NAMESPACE": server.namespace, "ACTS_TASK_QUEUE": task_queue,
        "ACTS_ACTIVITIES": "activities", "ACTS_STATE": str(project / "state"), "PATH": os.environ["PATH"],
        "PYTHONPATH": "",
    }  # fmt: skip

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(programs / words[0]), *words[1:]],
            cwd=project,
            env=settings,
            capture_output=True,
            text=True,
            check=False,
        )

    place = run("python", "-c", "import acts; print(acts.__file__)")
    assert place.stdout.startswith(str(programs.parent)), place.stderr
    validated = run("acts", "validate", "plan.json")
    assert validated.returncode == 0, validated.stdout + validated.stderr
    with started([str(programs / "acts"), "worker"], project / "worker.log", project, settings):
        done = run("acts", "run", "plan.json", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["state"] == {"greeting": "Hello, Ada!"}


def test_a_name_that_leads_to_the_engine_is_no_module_of_tools() -> None:
    with pytest.raises(SettingsError, match="leads to the engine itself"):
        load(["activities"], [])  # the door of the checkout
