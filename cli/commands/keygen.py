"""``acts keygen``: a key of an approver, or one that payloads are encrypted with."""

from __future__ import annotations

import base64
import os
from datetime import UTC, datetime
from pathlib import Path

from cli.command_errors import EXIT_DONE, command_error
from cli.console import print_err, print_out


def keygen(file: str | None, *, codec: bool) -> int:
    """Make a key; what is printed goes into a file of the workers."""
    if codec:
        return _print_codec_key()
    if file is None:
        raise command_error("a file for the private key is missing", hint="like `acts keygen ada.pem`")
    from cli.runs.signing_key import create_key

    path = Path(file)
    try:
        public = create_key(path)
    except FileExistsError:
        raise command_error(f"{path} is there already", hint="a key is never overwritten: name another file") from None
    except OSError as error:
        raise command_error(f"{path} cannot be written: {error.strerror}") from None
    print_err(f"{path} is the private key: only the approver needs it. For the file of ACTS_APPROVERS:")
    print_out(f'"{path.stem}": "{base64.b64encode(public).decode()}"')
    return EXIT_DONE


def _print_codec_key() -> int:
    from connection.codec_keys import KEY_BYTES, encode_key

    key = os.urandom(KEY_BYTES)
    print_out(f"k{datetime.now(UTC):%Y%m%d%H%M%S} {encode_key(key)}")
    return EXIT_DONE
