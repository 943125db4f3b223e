"""Fetches a set from a URL, under the rules of delegates' URLs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acts.language.wire import SET_REFUSED
from sets.set_errors import SetError

if TYPE_CHECKING:
    from typing import BinaryIO


def download_set(url: str, file: BinaryIO) -> None:
    """Write what is at a URL into a file."""
    raise SetError(SET_REFUSED, f"no sets from URLs yet: {url} {file}")
