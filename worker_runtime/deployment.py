"""The Worker Deployment Version that this worker belongs to (Temporal's worker versioning), from the environment.

``ACTS_DEPLOYMENT`` names the deployment, ``ACTS_BUILD_ID`` the version of the code in it. With both, every run is
pinned: it ends on the version that began it, and its children and its continuations inherit that version. With
neither, the worker is unversioned and takes the runs of every worker of its queue.

Laws of this file: it reads two variables and asks nobody.
"""

from __future__ import annotations

import os
import re
from typing import Final

from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import WorkerDeploymentConfig

DEPLOYMENT: Final = "ACTS_DEPLOYMENT"
BUILD_ID: Final = "ACTS_BUILD_ID"
# The server writes a version as NAME.BUILD and as NAME:BUILD, so a name has neither; Temporal's controller for
# Kubernetes puts a "/" into it. 200 characters leave room for a build id in the 255 that the server allows a version
_NAME: Final = re.compile(r"[A-Za-z0-9_/-]{1,200}")
# A digest of Git or of an image, a date, a semantic version; the names of Kubernetes' labels allow no more
_BUILD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,62}")


class DeploymentError(Exception):
    """One of the two settings is missing, or is no name."""


def read_version() -> WorkerDeploymentVersion | None:
    """The version that the environment names; None: this worker is unversioned.

    Raises:
        DeploymentError: naming the variable, what it holds and what is allowed.
    """
    name, build = os.environ.get(DEPLOYMENT, ""), os.environ.get(BUILD_ID, "")
    if not name and not build:
        return None
    if not name or not build:
        present, missing = (BUILD_ID, DEPLOYMENT) if build else (DEPLOYMENT, BUILD_ID)
        raise DeploymentError(f"{present} is set and {missing} is not; worker versioning needs both, or neither")
    if not _NAME.fullmatch(name):
        raise DeploymentError(
            f"{DEPLOYMENT} is {name!r}; a name has up to 200 letters, digits, '-', '_' and '/', such as acts"
        )
    if not _BUILD.fullmatch(build):
        raise DeploymentError(
            f"{BUILD_ID} is {build!r}; a build id has up to 63 letters, digits, '-', '_', '.' and '+', such as 1.4.2"
        )
    return WorkerDeploymentVersion(deployment_name=name, build_id=build)


def deployment_config(version: WorkerDeploymentVersion | None) -> WorkerDeploymentConfig | None:
    """The SDK's setting: all workflows pinned; None leaves the worker unversioned."""
    if version is None:
        return None
    return WorkerDeploymentConfig(
        version, use_worker_versioning=True, default_versioning_behavior=VersioningBehavior.PINNED
    )
