"""What a client cannot do: one error, which names the thing, what is there, what to do, and server and namespace.

Text from outside (names, messages of the server) is on one line, with escapes for what nobody would see.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from acts.language.errors import Problem, clean, shell

if TYPE_CHECKING:
    from temporalio.client import Client
    from temporalio.service import RPCError


class ClientError(Exception):
    """What was requested is not possible: ``head`` says why, ``where`` of what, ``hint`` what to do.

    ``is_unavailable``: no server, or no worker, answers. ``problems`` are those of a Request or an edit.
    """

    def __init__(
        self, head: str, hint: str = "", where: str = "", *, is_unavailable: bool = False,
        problems: Sequence[Problem] = (),
    ) -> None:  # fmt: skip
        self.head, self.hint, self.where, self.is_unavailable = head, hint, where, is_unavailable
        self.problems = tuple(problems)
        super().__init__(head, hint, where)

    def __str__(self) -> str:
        text = f"{self.where}: {self.head}" if self.where else self.head
        return f"{text} ({self.hint})" if self.hint else text


class NoSuchRunError(ClientError):
    """There is no run of this id, in the namespace of the server that the message names."""


def describe_server(client: Client) -> str:
    """``namespace "default" at 127.0.0.1:7233``"""
    return f'namespace "{clean(client.namespace, 100)}" at {clean(client.service_client.config.target_host, 100)}'


@contextmanager
def explained(client: Client | None = None, run: str = "") -> Iterator[None]:
    """A block of requests about one run (or about none: ""), whose errors say what they mean, as ClientError."""
    from temporalio.service import RPCError

    from acts.payloads.codec import CodecError
    from acts.payloads.stores import StorageError

    hint = "ACTS_STORAGE must be here what the worker has"
    try:
        yield
    except RPCError as error:
        raise explain_rpc_error(error, describe_server(client) if client is not None else "", run) from None
    except CodecError as error:
        raise codec_error(error) from None
    except StorageError as error:
        # A disk that is full, or a permission that is missing, is what it says
        raise ClientError(clean(error), "" if isinstance(error.__cause__, OSError) else hint) from None
    except RuntimeError as error:
        if "TMPRL1105" not in str(error):  # what the SDK says of a reference that it cannot follow
            raise
        raise ClientError("a value of this run is in external storage, which is not set here", hint) from None


def codec_error(error: Exception) -> ClientError:
    return ClientError(clean(str(error), 500), "docs/security.md says where keys come from")


def explain_rpc_error(error: RPCError, place: str = "", run: str = "") -> ClientError:
    """What an error of the server means; ``place`` names server and namespace, as far as they are known."""
    from temporalio.service import RPCStatusCode as Code

    text, inside = clean(error.message, 300), f" in the {place}" if place else ""
    if error.status == Code.NOT_FOUND and run and "namespace" not in text.lower():
        if "already completed" in text:  # the text has the id of the run, too
            return ended_error(run)
        head = f'there is no run "{clean(run, 200)}"{inside}'
        return NoSuchRunError(head, "`acts list --all` lists the ids of runs")
    if error.status in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.CANCELLED):
        is_unable = "shard status" in text  # as with a full database: it refuses what needs a history
        what, whole = "answers, but cannot work" if is_unable else "no longer answers", f" ({place})" if place else ""
        head = f"the Temporal server {what}{whole}: {text} ({error.status.name})"
        where = "look at its database (is its disk full?)" if is_unable else "check that it still runs"
        hint = f"{where}; runs that were started continue on it"
        return ClientError(head, hint, is_unavailable=True)
    hints = {
        **dict.fromkeys((Code.UNAUTHENTICATED, Code.PERMISSION_DENIED), "check TEMPORAL_API_KEY and the TLS settings"),
        Code.NOT_FOUND: "check TEMPORAL_NAMESPACE",
    }
    head, hint = f"the server refused the request{inside}: {text} ({error.status.name})", hints.get(error.status, "")
    return ClientError(head, hint, is_unavailable=bool(hint))


def ended_error(run: str) -> ClientError:
    return ClientError(f'the run "{clean(run, 200)}" has ended', f"`{shell('acts', 'show', run)}` shows how")
