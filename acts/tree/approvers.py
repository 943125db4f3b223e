"""Who may decide: the approvers of a tree of runs, with their public keys.

A worker reads them from the file of ``ACTS_APPROVERS`` when a root starts; from then on they belong to the tree::

    {"ada": "<public key>",
     "bob": {"keys": ["<public key>", "<public key>"], "tools": ["refund"], "plans": false}}

A key is Ed25519: 32 bytes in base64 (``acts keygen`` prints it) or PEM. ``tools`` are those whose Calls an approver
decides about (default: all), ``plans`` says whether whole plans, too (default: yes).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Final

from acts.language.errors import format_choices, truncate
from acts.language.values import Json, type_name
from acts.tree.wire_format import Record

# They travel with the start of every run of the tree: some 100 bytes each
MAX_APPROVERS: Final = 100
MAX_KEYS: Final = 10
KEY_BYTES: Final = 32
_FIELDS: Final = ("keys", "tools", "plans")


class ApproversError(ValueError):
    """The approvers cannot be used: names the approver and what is wrong."""


class Approver(Record):
    """One approver. ``keys`` are public keys of 32 bytes in base64; ``tools`` None: all."""

    name: str
    keys: tuple[str, ...]
    tools: tuple[str, ...] | None = None
    plans: bool = True

    def may_decide(self, tool: str | None) -> bool:
        """True for an approver who may decide about a Call of this Tool (None: about a plan)."""
        return self.plans if tool is None else self.tools is None or tool in self.tools


def read_approvers(content: Json) -> tuple[Approver, ...]:
    """The approvers of a file's content.

    Raises:
        ApproversError: it has another form.
    """
    if not isinstance(content, dict) or not content or len(content) > MAX_APPROVERS:
        raise ApproversError(f"approvers are an object of name to public key, with 1 to {MAX_APPROVERS} names")
    return tuple(_read_approver(name, entry) for name, entry in content.items())


def _read_approver(name: str, entry: Json) -> Approver:
    at = f'the approver "{truncate(name, 80)}"'
    fields: dict[str, Any] = entry if isinstance(entry, dict) else {"keys": entry}
    if unknown := [key for key in fields if key not in _FIELDS]:
        raise ApproversError(f"{at} has the unknown key {format_choices(unknown)}; allowed: {', '.join(_FIELDS)}")
    keys = fields.get("keys")
    keys = [keys] if isinstance(keys, str) else keys
    if not isinstance(keys, list) or not 0 < len(keys) <= MAX_KEYS or not all(isinstance(key, str) for key in keys):
        raise ApproversError(
            f"{at} has a public key, or a list of 1 to {MAX_KEYS}, not {type_name(fields.get('keys'))}"
        )
    tools = fields.get("tools")
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, str) for tool in tools)):
        raise ApproversError(f'{at}: "tools" is a list of names')
    if not isinstance(fields.get("plans", True), bool):
        raise ApproversError(f'{at}: "plans" is true or false')
    return Approver(
        name=name, keys=tuple(_public_key(key, at) for key in keys), tools=None if tools is None else tuple(tools),
        plans=fields.get("plans", True),
    )  # fmt: skip


def _public_key(text: str, at: str) -> str:
    """The key as 32 bytes in base64."""
    if "BEGIN" in text:
        data = _bytes_of_pem(text)
    else:
        try:
            data = base64.b64decode(text.strip(), validate=True)
        except (binascii.Error, ValueError):
            data = b""
    if len(data) != KEY_BYTES:
        raise ApproversError(f"{at}: a public key is Ed25519, as {KEY_BYTES} bytes in base64 or as PEM (`acts keygen`)")
    return base64.b64encode(data).decode()


def _bytes_of_pem(text: str) -> bytes:
    """The 32 bytes of an Ed25519 public key in PEM; nothing for another one."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        return b""
    return key.public_bytes_raw() if isinstance(key, Ed25519PublicKey) else b""


def approver_names(approvers: Sequence[Approver]) -> str:
    """Their names, for an error."""
    return format_choices(approver.name for approver in approvers)
