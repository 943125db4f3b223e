"""The variables of the environment that begin with ``ACTS_``: every one that the worker, a command or a client reads.

The prefix is ours, so a name that is not here is a mistake, and one that goes unnoticed is dangerous: with
``ACTS_CODEC_KEY`` payloads would be plain. Others may read variables that begin with ``TEMPORAL_``: of these, only what
looks like one of the SDK's is a mistake. A test compares the lists with the code, with docs/deploy.md and with deploy/.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from acts.language.errors import clean, format_choices

PREFIX: Final = "ACTS_"
# Those of the worker: fields of ``worker/settings.py``, which has their types and meanings
_WORKER: Final = """
log log_level task_queue activities tools plans mcp scripts delegates delegate_hosts delegate_private_hosts data results
data_hosts data_private_hosts models storage approvers secrets page codec_keys openai_api max_activities worker_memory
deployment build_id shutdown_seconds watchdog_seconds metrics health events_token
shipped_tools http_hosts http_private_hosts tool_limits max_parallel max_cost day_cost
"""
WORKER: Final = frozenset(f"{PREFIX}{name.upper()}" for name in _WORKER.split())
# Of `acts dev` (its folder, and what it tells its worker), `acts codec-server`, `acts notify` and `acts ui`
_COMMANDS: Final = """
state codec_token start_report notify notify_secret notify_link
ui_token ui_user_header ui_groups_header ui_proxy_token ui_origin
"""
COMMANDS: Final = frozenset(f"{PREFIX}{name.upper()}" for name in _COMMANDS.split())
_TEMPORAL: Final = "TEMPORAL_"
_TLS: Final = "TLS"
# Temporal's environment configuration, as the SDK reads it, without the prefix
_CONNECTION: Final = """
ADDRESS NAMESPACE API_KEY PROFILE CONFIG_FILE TLS TLS_CLIENT_CERT_PATH TLS_CLIENT_CERT_DATA TLS_CLIENT_KEY_PATH
TLS_CLIENT_KEY_DATA TLS_SERVER_CA_CERT_PATH TLS_SERVER_CA_CERT_DATA TLS_SERVER_NAME TLS_DISABLE_HOST_VERIFICATION
CODEC_ENDPOINT CODEC_AUTH
"""
CONNECTION: Final = frozenset(_CONNECTION.split())
# TEMPORAL_ADRESS and TEMPORAL_APIKEY are near; the old TEMPORAL_CLI_NAMESPACE is another program's
_NEARNESS: Final = 0.84
_SHORTEST: Final = 4  # TEMPORAL_ADDR
_SECRETS: Final = "env:"  # before the prefix of variables that ACTS_SECRETS may name


def find_mistake(environment: Mapping[str, str]) -> str | None:
    """What is wrong with the names of the variables, in one line that says which name was meant; None: nothing."""
    secrets = environment.get("ACTS_SECRETS", "")
    own = secrets.removeprefix(_SECRETS) if secrets.startswith(_SECRETS) else ""
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in WORKER | COMMANDS and not (own and name.startswith(own)):
            near = get_close_matches(name.removeprefix(PREFIX), [n.removeprefix(PREFIX) for n in WORKER | COMMANDS], 1)
            hint = f"did you mean {PREFIX}{near[0]}?" if near else f"there are {format_choices(WORKER, len(WORKER))}"
            return f"{clean(name, 100)} is set, and is no setting; {hint}"
        if (right_name := _find_meant(name)) is not None:
            return f"{clean(name, 100)} is set, and Temporal reads no such variable; {right_name}"
    return None


def _find_meant(name: str) -> str | None:
    """A hint for what is nearly one of Temporal's variables; None: it is one, or is of others."""
    short = name.removeprefix(_TEMPORAL)
    if short == name or short in CONNECTION:
        return None
    near = get_close_matches(short, sorted(CONNECTION), 1, _NEARNESS)
    near += [
        known for known in ("ADDRESS", "NAMESPACE", "PROFILE") if len(short) >= _SHORTEST and known.startswith(short)
    ]
    if near:
        return f"did you mean {_TEMPORAL}{near[0]}?"
    listed = format_choices((_TEMPORAL + known for known in CONNECTION if known.startswith(_TLS)), len(CONNECTION))
    return f"there are {listed}" if short.startswith(_TLS) else None
