"""A batch of small things to do: orders, each looked at by five calls. Data, Tools, Activities and the plan.

Loaded by ``ACTS_ACTIVITIES=benchmarks.orders``, in the engine's worker and in the hand-written one alike. An
Activity gets the Call, the Tool and the scoped context on either side.
"""

from __future__ import annotations

from typing import Any, Final

from temporalio import activity

Json = dict[str, Any]

CALLS: Final = 5
_TIERS: Final = ("basic", "silver", "gold")
_DISCOUNTS: Final = {"basic": 0, "silver": 5, "gold": 10}


def _tool(name: str, description: str, parameters: Json, output: Json) -> Json:
    return {
        "description": description,
        "type": "object",
        "properties": {
            "_tool": {"const": name},
            "_activity": {"const": f"orders.{name}"},
            "_outputPath": {"const": f"†state.{name}"},
            "_output": {"type": "object", "properties": output, "required": list(output)},
            **parameters,
        },
        "required": list(parameters),
    }


_TEXT: Final = {"type": "string"}
_WHOLE: Final = {"type": "integer", "minimum": 0}
_ITEMS: Final = {
    "type": "array",
    "items": {"type": "object", "properties": {"sku": _TEXT, "count": _WHOLE, "cents": _WHOLE}},
}

TOOLS: Final[dict[str, Json]] = {
    "customer": _tool(
        "customer", "Look up who has ordered", {"id": _TEXT},
        {"name": _TEXT, "since": _WHOLE, "tier": {"enum": list(_TIERS)}},
    ),
    "stock": _tool("stock", "Where the items are", {"items": _ITEMS}, {"available": {"type": "boolean"}, "depot": _TEXT}),
    "price": _tool(
        "price", "What the items cost this customer", {"items": _ITEMS, "tier": _TEXT},
        {"cents": _WHOLE, "discount": _WHOLE},
    ),
    "decide": _tool(
        "decide", "Whether the order is sent, and why",
        {"price": {"type": "object"}, "stock": {"type": "object"}}, {"send": {"type": "boolean"}, "why": _TEXT},
    ),
    "notify": _tool(
        "notify", "Tell the customer what was decided",
        {"customer": {"type": "object"}, "decision": {"type": "object"}}, {"told": {"type": "boolean"}, "text": _TEXT},
    ),
}  # fmt: skip

PLAN: Final[list[Json]] = [
    {"_tool": "customer", "id": "†state.order.customer"},
    {"_tool": "stock", "items": "†state.order.items"},
    {"_tool": "price", "items": "†state.order.items", "tier": "†state.customer.tier"},
    {"_tool": "decide", "price": "†state.price", "stock": "†state.stock"},
    {"_tool": "notify", "customer": "†state.customer", "decision": "†state.decide"},
]


def order(number: int) -> Json:
    """An order, as it comes in."""
    items = [{"sku": f"A-{(number + i) % 90 + 10}", "count": 1 + i, "cents": 1_990 + 100 * i} for i in range(2)]
    return {"id": f"o-{number:05}", "customer": f"c-{number % 977:04}", "country": "DE", "items": items}


def orders(count: int) -> dict[str, Json]:
    """So many of them, by instance."""
    return {f"order-{n:05}": order(n) for n in range(count)}


def request(given: dict[str, Json], **config: Any) -> Json:
    """A Request with an instance for each order and one plan for all of them."""
    own = [{"type": "state", "state": {"order": o}, "_instance": id_} for id_, o in given.items()]
    tools = [{"type": "tool", "tool": schema} for schema in TOOLS.values()]
    return {"config": config, "context": [*tools, *own, {"type": "plan", "plan": PLAN}]}


def finished(given: Json) -> Json:
    """The state that an order comes to."""
    customer = _customer(given["customer"])
    price = _price(given["items"], customer["tier"])
    stock = _stock(given["items"])
    decision = _decision(price, stock)
    return {
        "order": given, "customer": customer, "stock": stock, "price": price, "decide": decision,
        "notify": _notice(customer, decision),
    }  # fmt: skip


def _customer(id_: str) -> Json:
    number = int(id_[2:])
    return {"name": f"Customer {number}", "since": 2000 + number % 25, "tier": _TIERS[number % 3]}


def _stock(items: list[Json]) -> Json:
    return {"available": True, "depot": f"depot {int(items[0]['sku'][2:]) % 7}"}


def _price(items: list[Json], tier: str) -> Json:
    discount = _DISCOUNTS[tier]
    return {"cents": sum(i["count"] * i["cents"] for i in items) * (100 - discount) // 100, "discount": discount}


def _decision(price: Json, stock: Json) -> Json:
    return {"send": stock["available"], "why": f"{price['cents']} cents, from {stock['depot']}"}


def _notice(customer: Json, decision: Json) -> Json:
    return {"told": True, "text": f"Dear {customer['name']}, your order is on its way: {decision['why']}."}


@activity.defn(name="orders.customer")
async def customer(call: Json, _tool: Any = None, _context: Any = None) -> Json:
    """Who has ordered."""
    return _customer(call["id"])


@activity.defn(name="orders.stock")
async def stock(call: Json, _tool: Any = None, _context: Any = None) -> Json:
    """Where the items are."""
    return _stock(call["items"])


@activity.defn(name="orders.price")
async def price(call: Json, _tool: Any = None, _context: Any = None) -> Json:
    """What they cost."""
    return _price(call["items"], call["tier"])


@activity.defn(name="orders.decide")
async def decide(call: Json, _tool: Any = None, _context: Any = None) -> Json:
    """Whether they are sent."""
    return _decision(call["price"], call["stock"])


@activity.defn(name="orders.notify")
async def notify(call: Json, _tool: Any = None, _context: Any = None) -> Json:
    """What the customer is told."""
    return _notice(call["customer"], call["decision"])
