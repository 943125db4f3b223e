import acts
import shop
from pydantic import BaseModel


# task: refund, approval
@acts.tool(read_only=True)
def look_up(order: str) -> dict[str, str | int]:
    """Looks up an order."""
    return shop.look_up(order)


@acts.tool(destructive=True)
def pay(order: str, cents: int, *, call: acts.Call) -> dict[str, str]:
    """Pays back to the card that was charged."""
    return shop.pay(order, cents, key=call.id)


@acts.tool
def notify(order: str, text: str) -> dict[str, bool]:
    """Sends the customer a mail."""
    return shop.notify(order, text)


# task: refund
class Decision(BaseModel):
    cents: int
    reason: str


@acts.tool(latent=True)
def decide(order: dict) -> Decision:
    """Decides how much of the order to refund."""


# task: fan_out
@acts.tool
def work(order: str, number: int) -> dict[str, bool]:
    """Does a piece of work."""
    return shop.work(order, number)


# task: agent
@acts.tool(read_only=True)
def read_page(number: int) -> str:
    """Reads a page."""
    return shop.read_page(number)
