"""Where a worker has its secrets: ``ACTS_SECRETS`` names a folder with a file for each, or ``env:PREFIX``.

* A folder, as Docker and Kubernetes mount one: the file ``stripe-key`` has the value; a newline at its end is dropped.
* ``env:PREFIX``: the variable PREFIX + the name in capitals, other characters than letters and digits as ``_``:
  ``env:ACTS_SECRET_`` has ``stripe-key`` in ``ACTS_SECRET_STRIPE_KEY``.

A secret is read each time that an Activity needs it, so a changed one counts at once. No error contains a value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from acts.language.secret_references import secret_names, secret_parameters

VARIABLE: Final = "ACTS_SECRETS"
# No separator of paths, and no dot at the beginning: a name never leaves the folder
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# A key with its chain of certificates has some kilobytes
MAX_BYTES: Final = 64 * 1024
_ENV: Final = "env:"


class SecretSettingsError(Exception):
    """``ACTS_SECRETS``, or a Tool that names a secret, cannot be used."""


class SecretMissing(Exception):
    """A secret cannot be read here: names it and the setting, not its value."""


@dataclass(frozen=True)
class SecretSource:
    """``folder`` or ``prefix``; with neither, no secret is there."""

    folder: Path | None = None
    prefix: str | None = None

    def read(self, name: str, environment: Mapping[str, str] = os.environ) -> str:
        """The value of a secret.

        Raises:
            SecretMissing: it is not there, or is no text.
        """
        if not NAME.fullmatch(name):
            text = "a name is 1 to 128 letters, digits, and . _ -, beginning with a letter or digit"
            raise SecretMissing(f"{name[:80]!r} cannot be the name of a secret: {text}")
        if self.prefix is not None:
            variable = self.prefix + re.sub(r"[^A-Za-z0-9]", "_", name).upper()
            value = environment.get(variable)
            if not value:
                raise SecretMissing(f'the secret "{name}" is missing: {variable} is not set')
            return value
        if self.folder is None:
            raise SecretMissing(f'the secret "{name}" is missing: {VARIABLE} is not set')
        return _read_file(self.folder / name, name)


def _read_file(path: Path, name: str) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SecretMissing(f'the secret "{name}" is missing: {path} of {VARIABLE}: {error.strerror}') from None
    if len(data) > MAX_BYTES:
        raise SecretMissing(f'the secret "{name}" cannot be used: {path} has more than {MAX_BYTES:,} bytes')
    try:
        value = data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise SecretMissing(f'the secret "{name}" cannot be used: {path} is not text in UTF-8') from None
    if not value:
        raise SecretMissing(f'the secret "{name}" is missing: {path} is empty')
    return value


def source_from_environment() -> SecretSource:
    """What ``ACTS_SECRETS`` names.

    Raises:
        SecretSettingsError: it names nothing that can be read.
    """
    setting = os.environ.get(VARIABLE)
    if not setting:
        return SecretSource()
    if setting.startswith(_ENV):
        prefix = setting.removeprefix(_ENV)
        if not re.fullmatch(r"[A-Za-z_]\w*", prefix):
            raise SecretSettingsError(f"{VARIABLE} is {setting!r}; a prefix of variables is like env:ACTS_SECRET_")
        return SecretSource(prefix=prefix)
    if not Path(setting).is_dir():
        raise SecretSettingsError(f"{VARIABLE} names {setting}, which is not a folder; or write env:PREFIX")
    return SecretSource(folder=Path(setting))


def check_tools(tools: Mapping[str, Any], source: SecretSource) -> list[str]:
    """What is missing for the Tools of a worker: a line for each secret.

    Raises:
        SecretSettingsError: a Tool names a secret in a place where none is read.
    """
    missing: dict[str, None] = {}
    for tool, schema in tools.items():
        fixed = secret_parameters(schema)
        read = [name for value in fixed.values() for name in secret_names(value)]
        if len(list(secret_names(schema))) != len(read):
            text = "a secret is the const of a parameter, or a part of one"
            hint = '"apiKey": {"const": {"$secret": "name"}}'
            raise SecretSettingsError(f'the tool "{tool}" names a secret in another place; {text}: {hint}')
        for name in read:
            try:
                source.read(name)
            except SecretMissing as error:
                missing[f'tool "{tool}": {error}'] = None
    return list(missing)
