"""Our half of the example: what the foreign worker found is compared and written down."""

from __future__ import annotations

from temporalio import activity

from examples.effects import Json, own_file, write_whole


@activity.defn(name="writeFactors")
def write_factors(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Both factorizations and the primes they share, in a file of this Call's own."""
    first, second = call["first"], call["second"]
    common = sorted(set(first["factors"]) & set(second["factors"]))
    lines = [f"{found['number']} = {' * '.join(map(str, found['factors']))}" for found in (first, second)]
    text = "\n".join([*lines, f"common primes: {', '.join(map(str, common)) or 'none'}", ""])
    return {"file": write_whole(own_file("foreign", "factors", call), text), "common": common}
