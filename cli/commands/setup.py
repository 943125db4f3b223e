"""``acts setup``: prepares a namespace: registers the search attributes by which runs are found."""

from __future__ import annotations

from activities.namespace_check import registered_types, value_type
from acts.tree.search_attributes import TYPES
from cli.command_errors import EXIT_DONE, command_error
from cli.console import print_err, print_out
from cli.runs import server


async def setup(*, show_only: bool) -> int:
    """Register the attributes that the namespace lacks; one of another type is an error.

    ``show_only`` prints the commands for an administrator, and changes nothing.
    """
    from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
    from temporalio.service import RPCError

    if show_only:
        for name, type_ in TYPES.items():
            print_out(f"temporal operator search-attribute create --name {name} --type {type_}")
        return EXIT_DONE
    client = await server.connect()
    hint = "an administrator can: `acts setup --show` prints the commands"
    try:
        present = await registered_types(client)
        wrong = [n for n in TYPES if n in present and present[n] != value_type(n)]
        if wrong:
            head = f"the namespace {client.namespace!r} has {', '.join(wrong)} with another type"
            raise command_error(head, hint="remove it, or use another namespace; runs work without, and are not found")
        missing = {name: value_type(name) for name in TYPES if name not in present}
        if missing:
            request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=missing)
            await client.operator_service.add_search_attributes(request, timeout=server.RPC)
    except RPCError as error:
        head = f"the search attributes of {client.namespace!r} cannot be registered: {error.message}"
        raise command_error(head, hint=hint) from None
    done = f"registered {', '.join(missing)}" if missing else "has all search attributes"
    print_err(f"namespace {client.namespace}: {done}; runs that start from now on (within a minute) have them")
    return EXIT_DONE
