"""A batch of orders, each processed by five calls: data, Tools, Activities and the plan.

The engine's worker and the hand-written one load it with ``ACTS_ACTIVITIES=benchmarks.orders``. On either side an
Activity gets the Call, the Tool and the scoped context.
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
        "customer", "Look up the customer", {"id": _TEXT},
        {"name": _TEXT, "since": _WHOLE, "tier": {"enum": list(_TIERS)}},
    ),
    "stock": _tool("stock", "Find the items", {"items": _ITEMS}, {"available": {"type": "boolean"}, "depot": _TEXT}),
    "price": _tool(
        "price", "Compute the price for this customer", {"items": _ITEMS, "tier": _TEXT},
        {"cents": _WHOLE, "discount": _WHOLE},
    ),
    "decide": _tool(
        "decide", "Decide whether the order is sent",
        {"price": {"type": "object"}, "stock": {"type": "object"}}, {"send": {"type": "boolean"}, "why": _TEXT},
    ),
    "notify": _tool(
        "notify", "Notify the customer of the decision",
        {"customer": {"type": "object"}, "decision": {"type": "object"}}, {"sent": {"type": "boolean"}, "text": _TEXT},
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
    """One order."""
    items = [{"sku": f"A-{(number + i) % 90 + 10}", "count": 1 + i, "cents": 1_990 + 100 * i} for i in range(2)]
    return {"id": f"o-{number:05}", "customer": f"c-{number % 977:04}", "country": "DE", "items": items}


def orders(count: int) -> dict[str, Json]:
    """``count`` orders, by instance."""
    return {f"order-{n:05}": order(n) for n in range(count)}


def request(batch: dict[str, Json], **config: Any) -> Json:
    """A Request with an instance for each order and one plan for all of them."""
    own = [{"type": "state", "state": {"order": o}, "_instance": id_} for id_, o in batch.items()]
    tools = [{"type": "tool", "tool": schema} for schema in TOOLS.values()]
    return {"config": config, "context": [*tools, *own, {"type": "plan", "plan": PLAN}]}


def final_state(order_: Json) -> Json:
    """The state of an order after its five calls."""
    customer = _customer(order_["customer"])
    price = _price(order_["items"], customer["tier"])
    stock = _stock(order_["items"])
    decision = _decision(price, stock)
    return {
        "order": order_, "customer": customer, "stock": stock, "price": price, "decide": decision,
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
    return {"sent": True, "text": f"Dear {customer['name']}, your order is on its way: {decision['why']}."}


@activity.defn(name="orders.customer")
async def customer(call: Json, _tool: Any = None, _context: Any = None) -> Json:
    """Look up the customer."""
    return _customer(call["id"])


@activity.defn(name="orders.stock")
async def stock(call: Json, _tool: Any = None, _context: Any = None) -> Json:
    """Find the items."""
    return _stock(call["items"])


@activity.defn(name="orders.price")
async def price(call: Json, _tool: Any = None, _context: Any = None) -> Json:
    """Compute the price."""
    return _price(call["items"], call["tier"])


@activity.defn(name="orders.decide")
async def decide(call: Json, _tool: Any = None, _context: Any = None) -> Json:
    """Decide whether the order is sent."""
    return _decision(call["price"], call["stock"])


@activity.defn(name="orders.notify")
async def notify(call: Json, _tool: Any = None, _context: Any = None) -> Json:
    """Notify the customer."""
    return _notice(call["customer"], call["decision"])
