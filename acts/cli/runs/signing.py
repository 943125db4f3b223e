"""The private key of an approver: made, read, and used to sign a decision.

Laws of this file: a private key is written once, for its owner only, and never printed. What is signed is compared with
what the run shows: a person signs what they can see.
"""

from __future__ import annotations

import base64
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acts.cli.console import clean, command_error
from acts.tree.decisions import SIGN, PendingApproval, call_subject, make_statement, read_decision
from acts.tree.wire_format import digest

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from acts.cli.runs.run_reader import RunReader


def create_key(path: Path) -> bytes:
    """Write a new private key (PEM, mode 600); returns the public key.

    Raises:
        FileExistsError: a key is never overwritten. OSError: the file cannot be written.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(pem)
    return key.public_key().public_bytes_raw()


def read_key(file: str) -> Ed25519PrivateKey:
    """The private key of a file.

    Raises:
        CommandError: it has none.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    hint = "`acts keygen FILE` makes a key; a key with a passphrase is not supported"
    try:
        key = load_pem_private_key(Path(file).read_bytes(), None)
    except OSError as error:
        raise command_error(f"{clean(file, 200)} cannot be read: {error.strerror}", where="--key", hint=hint) from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise command_error(f"{clean(file, 200)} is no private key of Ed25519 in PEM", where="--key", hint=hint)
    return key


async def sign_decision(
    file: str, waiting: RunReader, approval: PendingApproval, decision: dict[str, Any]
) -> dict[str, Any]:
    """The decision with a signature. ``waiting`` is the run that waits.

    Raises:
        CommandError: there is no key, nothing to sign, or the run shows something else than it wants signed.
    """
    key = read_key(file)
    if SIGN not in approval.about:
        hint = "decide without --key; the workers read ACTS_APPROVERS when a run begins"
        raise command_error("this run takes no signed decisions: it began without approvers", hint=hint)
    await _check_subject(waiting, approval)
    time = datetime.now(UTC).isoformat(timespec="seconds")
    statement = make_statement(approval, read_decision(decision), time)
    return {**decision, "signature": {"time": time, "value": base64.b64encode(key.sign(statement)).decode()}}


async def _check_subject(waiting: RunReader, approval: PendingApproval) -> None:
    """Raise unless what the run shows of the approval is what it asks to be signed."""
    shown: Any = None
    if approval.what == "plan":
        shown = await waiting.plan()
    else:
        parameters = await waiting.pending_parameters() or {}
        own = [item for item in parameters.get("calls", ()) if item.get("call") == approval.call]
        subjects = [digest(call_subject(item["with"])) for item in own]
        if approval.about[SIGN]["subject"] in subjects:
            return
    if shown is None or digest(shown) != approval.about[SIGN]["subject"]:
        head = f"what is shown of {approval} is not what would be signed"
        hint = "look at it again with `acts show`; if it does not change, tell an operator"
        raise command_error(clean(head), hint=hint)
