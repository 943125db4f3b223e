"""The part of the example in the project's worker: compares the results of the foreign worker."""

from __future__ import annotations

from temporalio import activity

from examples.effects import Json, own_file, write_atomically


@activity.defn(name="writeFactors")
def write_factors(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Writes both factorizations and their common primes to the Call's own file."""
    first, second = call["first"], call["second"]
    common = sorted(set(first["factors"]) & set(second["factors"]))
    lines = [f"{item['number']} = {' * '.join(map(str, item['factors']))}" for item in (first, second)]
    text = "\n".join([*lines, f"common primes: {', '.join(map(str, common)) or 'none'}", ""])
    return {"file": write_atomically(own_file("foreign", "factors", call), text), "common": common}
