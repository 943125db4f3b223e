"""Tasks on what plans can say beyond calls that follow each other: branches, lists, plans of their own, people, time.

All of them are held out. Their numbers are the names of their prompts, so that a prompt's name tells nothing.
"""

from __future__ import annotations

from acts.activities.shipped_tools import SHIPPED
from benchmarks.planning.task import (
    NEVER,
    NUMBER,
    TEXT,
    Earlier,
    Fails,
    InTurn,
    Json,
    Task,
    World,
    effect,
    has,
    listing,
    record,
    tool,
)

TRUTH = {"type": "boolean"}
LINES = {"type": "array", "items": TEXT}
MAIL = tool("mail", "Sends a mail.", record(id=TEXT), to=TEXT, text=TEXT)
SMS = tool("sendSms", "Sends a short message.", record(id=TEXT), phone=TEXT, message=TEXT)
TICKET = tool("openTicket", "Opens a ticket for a person.", record(number=NUMBER), reason=TEXT)
INCIDENT = tool("reportIncident", "Reports an incident to the shift.", record(id=TEXT), summary=TEXT)
ORDERS = tool("listOrders", "The orders of a customer.", listing(id=TEXT, total=NUMBER, paid=TRUTH), customer=TEXT)
ORDER = tool("getOrder", "An order.", record(id=TEXT, total=NUMBER), orderId=TEXT)
REFUND = tool("refund", "Refunds an order.", record(id=TEXT), orderId=TEXT)
SHIP = tool("ship", "Ships an order.", record(tracking=TEXT), orderId=TEXT,
            speed={"enum": ["express", "standard"]})  # fmt: skip
NORTH = tool("priceAtNorth", "The price of an article at the supplier North.", record(price=NUMBER),
             fails={"notCarried": "North does not carry the article."}, article=TEXT)  # fmt: skip
SOUTH = tool("priceAtSouth", "The price of an article at the supplier South.", record(price=NUMBER), article=TEXT)
DOCUMENTS = tool("listDocuments", "The documents of a folder.", listing(id=TEXT, title=TEXT), folder=TEXT)
INDEX = tool("indexDocuments", "Puts documents, at most four at a time, into the search index.", record(job=TEXT),
             ids={**LINES, "maxItems": 4})  # fmt: skip
BUNDLE = tool("shipTogether", "Ships several orders in one parcel.", record(tracking=TEXT), orderIds=LINES)
CHARGE = tool("charge", "Charges a card.", record(id=TEXT), card=TEXT, amount=NUMBER,
              fails={"declined": "The bank does not allow it.", "overLimit": "The amount is above the card's limit.",
                     "expired": "The card is too old."})  # fmt: skip
SERVERS = tool("listServers", "The servers of a region.", listing(name=TEXT, load=NUMBER), region=TEXT)
RESTART = tool("restart", "Restarts a server.", record(ok=TRUTH), server=TEXT)
OFFER = tool("askOffer", "Asks a carrier for an offer; some take days to answer.", record(offerId=TEXT, price=NUMBER),
             carrier=TEXT)  # fmt: skip
TRANSPORT = tool("orderTransport", "Orders a transport by an offer.", record(number=TEXT), offerId=TEXT)
EXPORT = tool("startExport", "Starts an export.", record(exportId=TEXT), dataset=TEXT)
CHECK = tool("checkExport", "How far an export is. The link is there once it is done.",
             {"type": "object", "properties": {"done": TRUTH, "link": TEXT}, "required": ["done"]}, exportId=TEXT)  # fmt: skip
RESERVE = tool("reserveStock", "Reserves the articles of an order.", record(reservation=TEXT), orderId=TEXT)
PACK = tool("pack", "Packs what was reserved.", record(parcel=TEXT), reservation=TEXT)
SEND = tool("sendParcel", "Hands a parcel to the carrier.", record(tracking=TEXT), parcel=TEXT)
MANAGER = tool("askManager", "Asks the manager for a decision.", record(agreed=TRUTH, comment=TEXT), person=True,
               question=TEXT)  # fmt: skip
REVIEWER = tool("askReviewer", "Asks a reviewer whether an article may appear; some are away for weeks.",
                record(yes=TRUTH), person=True, reviewer=TEXT, article=TEXT)  # fmt: skip
PUBLISH = tool("publish", "Publishes an article.", record(url=TEXT), title=TEXT)
FLIGHT = tool("bookFlight", "Books a flight.", record(booking=TEXT), to=TEXT, day=TEXT,
              undo={"_tool": "cancelFlight", "booking": "†result.booking"})  # fmt: skip
CANCEL = tool("cancelFlight", "Cancels a booking of a flight.", record(ok=TRUTH), booking=TEXT)
HOTEL = tool("bookHotel", "Books a room.", record(code=TEXT), city=TEXT, day=TEXT,
             fails={"full": "No room is left."})  # fmt: skip
TABLE = tool("reserveTable", "Reserves a table.", record(code=TEXT), restaurant=TEXT, guests=NUMBER)
DISPATCH = tool("dispatch", "Sends the goods of a payment on their way.", {"type": "object"}, paymentId=TEXT)

_THINGS = """invoice contract employee vehicle warehouse shipment supplier product campaign coupon lead meeting room badge
device license server backup certificate domain project task milestone timesheet expense budget payroll vacation
applicant training survey newsletter article translation photo complaint warranty repair return subscription tariff
meter site cashier till audit rule claim donation membership"""
_VERBS = {
    "get": ("Reads one {}.", {"id": TEXT}, record(id=TEXT, status=TEXT)),
    "list": ("Lists the {}s of an owner.", {"owner": TEXT}, listing(id=TEXT, status=TEXT)),
    "create": ("Creates one {}.", {"name": TEXT}, record(id=TEXT)),
    "archive": ("Archives one {}.", {"id": TEXT}, record(ok=TRUTH)),
    "delete": ("Deletes one {} for good.", {"id": TEXT}, record(ok=TRUTH)),
}
MANY = (
    *(tool(f"{verb}{thing.capitalize()}{'s' if verb == 'list' else ''}", text.format(thing), gives, **parameters)
      for thing in _THINGS.split() for verb, (text, parameters, gives) in _VERBS.items()),
    tool("remindDebtor", "Sends a customer a reminder of an invoice.", record(id=TEXT), invoiceId=TEXT),
    MAIL,
)  # fmt: skip
SEARCH = {"tools": {"search": 100}}

USER = {"name": "Ada", "email": "ada@example.org", "phone": "+371 1"}
PAID, SENT, OPENED, REPORTED = {"id": "r-1"}, {"id": "m-1"}, {"number": 7}, {"id": "i-1"}
SOLD = [{"id": "o-1", "total": 25, "paid": True}, {"id": "o-2", "total": 90, "paid": False},
        {"id": "o-3", "total": 20, "paid": True}, {"id": "o-4", "total": 31, "paid": True},
        {"id": "o-5", "total": 4, "paid": False}]  # fmt: skip
NINE = [{"id": f"d-{n}", "title": f"Title {n}"} for n in range(1, 10)]
BILLS = [{"id": "v-1", "status": "open"}, {"id": "v-2", "status": "paid"}, {"id": "v-3", "status": "open"}]
FULL = Fails("full", "The fair has taken all rooms.")
AWAY = Fails("noSeat", "The plane is full.")


def _carrier(name: str) -> World:
    """Of the carriers, this one alone ever answers."""
    return World({"askOffer": lambda p: {"offerId": f"of-{name}", "price": 9} if name in p["carrier"].lower() else NEVER,
                  "orderTransport": {"number": "T"}}, (effect("orderTransport", offerId=f"of-{name}"),))  # fmt: skip


def _votes(said: dict[str, bool], effects: tuple[Json, ...]) -> World:
    """Of the reviewers, these have answered."""

    def answer(p: dict[str, Json]) -> Json:
        return next(({"yes": yes} for name, yes in said.items() if name in p["reviewer"].lower()), NEVER)

    return World({"askReviewer": answer, "publish": {"url": "u"}, "mail": SENT}, effects)


def _steps(failing: dict[str, str], reason: str = "") -> World:
    """Orders o-1 to o-3, of which a step fails for some."""

    def step(name: str, prefix: str, key: str, result: str) -> Json:
        return lambda p: (Fails("broken", reason) if failing.get(str(p[key])[-3:]) == name
                          else {result: prefix + str(p[key])[-3:]})  # fmt: skip

    sent = [o["id"] for o in SOLD[:3] if failing.get(o["id"], "send") == "send"]  # the last step is tried
    return World({"listOrders": SOLD[:3], "reserveStock": step("reserve", "res-", "orderId", "reservation"),
                  "pack": step("pack", "par-", "reservation", "parcel"),
                  "sendParcel": step("send", "tr-", "parcel", "tracking"), "openTicket": OPENED},
                 (*(effect("sendParcel", parcel=f"par-{id_}") for id_ in sent),
                  *(effect("openTicket", reason=has(id_, reason)) for id_ in failing)))  # fmt: skip


CHARGED = {"calls": [
    {"_tool": "charge", "card": "†input.card", "amount": "†input.amount", "_outputPath": "†state.receipt"},
    {"_tool": "dispatch", "paymentId": "†state.receipt.id", "_outputPath": "†state.parcel"},
], "output": {"tracking": "†state.parcel.trackingNumber", "day": "†state.parcel.day"}}  # fmt: skip

FORMS: tuple[Task, ...] = (
    Task("01-price", "branch", "Ask North for the price of article a-1. Only if North does not carry it, ask South. Mail the "
         "user the price that you got, and answer with it.", (NORTH, SOUTH, MAIL),
         (World({"priceAtNorth": {"price": 12}, "priceAtSouth": {"price": 14}, "mail": SENT},
                (effect("priceAtNorth"), effect("mail", text=has("12"))), output={"price": 12}),
          World({"priceAtNorth": Fails("notCarried", "no"), "priceAtSouth": {"price": 14}, "mail": SENT},
                (effect("priceAtNorth"), effect("priceAtSouth", article="a-1"), effect("mail", text=has("14"))),
                output={"price": 14}),
          World({"priceAtNorth": Fails("busy", "no"), "priceAtSouth": {"price": 14}, "mail": SENT},
                (effect("priceAtNorth"),))), {"user": USER}, schema=record(price=NUMBER)),
    Task("02-speed", "branch", "Ship order o-9: express if its total is at least 100, otherwise standard.", (ORDER, SHIP),
         tuple(World({"getOrder": {"id": "o-9", "total": total}, "ship": {"tracking": "TR-1"}},
                     (effect("ship", orderId="o-9", speed=speed),), output=lambda o: o is not None)
               for total, speed in ((100, "express"), (99.5, "standard"), (0, "standard")))),
    Task("03-dear", "list", "Of the orders of customer c-7, refund each one that is paid and costs more than 20; leave the "
         "others alone. Answer with how many orders the customer has in all.", (ORDERS, REFUND),
         (World({"listOrders": SOLD, "refund": PAID}, (effect("refund", orderId="o-1"), effect("refund", orderId="o-4")),
                output={"orders": 5}),
          World({"listOrders": SOLD[1:3], "refund": PAID}, (), output={"orders": 2}),
          World({"listOrders": [], "refund": PAID}, (), output={"orders": 0})), schema=record(orders=NUMBER)),
    Task("04-index", "list", "Put all documents of the folder f-1 into the search index, with as few calls of the index as "
         "possible.", (DOCUMENTS, INDEX),
         (World({"listDocuments": NINE, "indexDocuments": {"job": "j"}}, tuple(
             effect("indexDocuments", ids=[d["id"] for d in NINE[at:at + 4]]) for at in (0, 4, 8))),
          World({"listDocuments": NINE[:3], "indexDocuments": {"job": "j"}},
                (effect("indexDocuments", ids=["d-1", "d-2", "d-3"]),)),
          World({"listDocuments": [], "indexDocuments": {"job": "j"}}))),
    Task("05-parcel", "list", "Ship all orders of customer c-7 in one parcel, and mail the user how many orders are in it "
         "and its tracking number. If the customer has no order, do neither.", (ORDERS, BUNDLE, MAIL),
         (World({"listOrders": SOLD, "shipTogether": {"tracking": "TR-ABC"}, "mail": SENT},
                (effect("shipTogether", orderIds=[o["id"] for o in SOLD]), effect("mail", text=has("5", "TR-ABC")))),
          World({"listOrders": [], "shipTogether": {"tracking": "TR-ABC"}, "mail": SENT})), {"user": USER}),
    Task("06-sum", "compute", "Charge the card of the input with the sum of all orders of customer c-7 that are not paid yet. "
         "If that is nothing, charge nothing. One plan.", (ORDERS, CHARGE, SHIPPED["compute"]),
         (World({"listOrders": SOLD, "charge": PAID}, (effect("charge", card="card-1", amount=94),)),
          World({"listOrders": SOLD[2:4], "charge": PAID}), World({"listOrders": [], "charge": PAID})),
         {"input": {"card": "card-1"}}),
    Task("07-least", "compute", "Restart the server of the region north that has the least load. If the region has none, "
         "report an incident that names the region. One plan.", (SERVERS, RESTART, INCIDENT, SHIPPED["compute"]),
         (World({"listServers": [{"name": "a", "load": 0.4}, {"name": "b", "load": 0.1}, {"name": "c", "load": 0.9}],
                 "restart": {"ok": True}, "reportIncident": REPORTED}, (effect("restart", server="b"),)),
          World({"listServers": [], "restart": {"ok": True}, "reportIncident": REPORTED},
                (effect("reportIncident", summary=has("north")),)))),
    Task("08-trial", "wait", "Mail the user that the trial has begun. One day after that mail has been sent, text them: How is "
         "it going? If the mail cannot be sent, text nothing.", (MAIL, SMS, SHIPPED["wait"]),
         (World({"mail": SENT, "sendSms": SENT}, (effect("mail"), effect("wait", seconds=86400.0),
                effect("sendSms", phone="+371 1", message=has("How is it going?"))),
                before=(("mail", "wait"), ("wait", "sendSms"))),
          World({"mail": Fails("bounced", "no"), "sendSms": SENT}, (effect("mail"),))), {"user": USER}),
    Task("09-first", "plan", "Ask the carriers Alfa, Beta and Gamma for an offer, all at once. Order the transport by the "
         "first offer that comes in, without waiting for the others. One plan.", (OFFER, TRANSPORT, SHIPPED["plan"]),
         (_carrier("alfa"), _carrier("beta"), _carrier("gamma"))),
    Task("10-export", "plan", "Start an export of the dataset sales, and check every minute whether it is done, at most ten "
         "times. Mail the user the link once it is; if it is still not done after ten checks, open a ticket. One plan.",
         (EXPORT, CHECK, MAIL, TICKET, SHIPPED["plan"], SHIPPED["wait"]),
         (World({"startExport": {"exportId": "x-1"}, "mail": SENT, "openTicket": OPENED,
                 "checkExport": InTurn(({"done": False}, {"done": False}, {"done": True, "link": "https://x/1"}))},
                (*[effect("checkExport", exportId="x-1")] * 3, effect("mail", text=has("https://x/1")))),
          World({"startExport": {"exportId": "x-1"}, "mail": SENT, "openTicket": OPENED,
                 "checkExport": InTurn(({"done": False},))},
                (*[effect("checkExport", exportId="x-1")] * 10, effect("openTicket"))),
          World({"startExport": {"exportId": "x-1"}, "mail": SENT, "openTicket": OPENED,
                 "checkExport": {"done": True, "link": "https://x/2"}},
                (effect("checkExport"), effect("mail", text=has("https://x/2"))))), {"user": USER}),
    Task("11-steps", "plan", "For each order of customer c-7: reserve its stock, pack what was reserved, and hand the parcel "
         "over. No order waits for another one. Where a step fails, open a ticket with the order's id and the message of "
         "the failure; the other orders go on. One plan.", (ORDERS, RESERVE, PACK, SEND, TICKET, SHIPPED["plan"]),
         (_steps({}), _steps({"o-2": "pack"}, "The box is torn."), _steps({"o-1": "reserve", "o-3": "send"}, "Sold out."))),
    Task("12-health", "http", 'Get https://status.example.org/health, which answers with JSON like {"state": "up"}. If the '
         "state is not up, restart server a. If there is no usable answer, report an incident that says why, and restart "
         "nothing. One plan.", (SHIPPED["http"], RESTART, INCIDENT),
         (World({"http": {"status": 200, "headers": {}, "json": {"state": "up"}}, "restart": {"ok": True}},
                (effect("http", url="https://status.example.org/health"),)),
          World({"http": {"status": 200, "headers": {}, "json": {"state": "down"}}, "restart": {"ok": True}},
                (effect("http"), effect("restart", server="a"))),
          World({"http": Fails("httpUnavailable", "The line is dead."), "reportIncident": REPORTED},
                (effect("http"), effect("reportIncident", summary=has("The line is dead.")))))),
    Task("13-manager", "person", "Ask the manager whether order o-5 may be refunded. If they agree, refund it; if not, mail the "
         "user what the manager has commented. One plan.", (MANAGER, REFUND, MAIL),
         (World({"askManager": {"agreed": True, "comment": "Fine."}, "refund": PAID, "mail": SENT},
                (effect("askManager", question=has("o-5")), effect("refund", orderId="o-5"))),
          World({"askManager": {"agreed": False, "comment": "Too late."}, "refund": PAID, "mail": SENT},
                (effect("askManager", question=has("o-5")), effect("mail", text=has("Too late."))))), {"user": USER}),
    Task("14-votes", "person", 'Ask the reviewers Ann, Ben and Cem whether the article "Spring" may appear. As soon as two of '
         "them have said yes, publish it; as soon as two have said no, mail the user that it was turned down. In neither "
         "case wait for the third. One plan.", (REVIEWER, PUBLISH, MAIL, SHIPPED["plan"]),
         (_votes({"ann": True, "cem": True}, (effect("publish", title=has("Spring")),)),
          _votes({"ann": False, "ben": True, "cem": True}, (effect("publish"),)),
          _votes({"ann": True, "ben": True}, (effect("publish"),)),
          _votes({"ann": False, "ben": False}, (effect("mail"),)),
          _votes({"ben": False, "cem": False}, (effect("mail", to="ada@example.org"),)),
          _votes({"ann": True, "ben": False, "cem": False}, (effect("mail"),)), _votes({"ann": True, "ben": False}, ())),
         {"user": USER}),
    Task("15-trip", "undo", "Book a flight to Riga and then a room there, both for 2027-03-04. Without a flight, book no room. If "
         "booking the room fails, cancel the flight and mail the user the reason. One plan.", (FLIGHT, CANCEL, HOTEL, MAIL),
         (World({"bookFlight": {"booking": "B-9"}, "bookHotel": {"code": "H"}}, (effect("bookFlight"), effect("bookHotel")),
                before=(("bookFlight", "bookHotel"),)),
          World({"bookFlight": {"booking": "B-9"}, "bookHotel": FULL, "cancelFlight": {"ok": True}, "mail": SENT},
                (effect("bookFlight"), effect("bookHotel"), effect("cancelFlight", booking="B-9"),
                 effect("mail", text=has("The fair has taken all rooms.")))),
          World({"bookFlight": AWAY}, (effect("bookFlight"),))), {"user": USER}, config={"onFailure": "undo"}),
    Task("16-codes", "failure", "Charge the card of the input. If the bank declines it, mail the user that they should use "
         "another card. If it is over its limit, open a ticket. If it fails in any other way, report an incident with the "
         "message of the failure. One plan.", (CHARGE, MAIL, TICKET, INCIDENT),
         tuple(World({"charge": result, "mail": SENT, "openTicket": OPENED, "reportIncident": REPORTED},
                     (effect("charge", card="card-1", amount=50), *effects))
               for result, effects in (
                   (PAID, ()), (Fails("declined", "Ask your bank."), (effect("mail", text=has("another card")),)),
                   (Fails("overLimit", "Too much."), (effect("openTicket"),)),
                   (Fails("expired", "It ended in May."), (effect("reportIncident", summary=has("It ended in May.")),)),
                   (Fails("ConnectionError", "No line."), (effect("reportIncident", summary=has("No line.")),)))),
         {"user": USER, "input": {"card": "card-1", "amount": 50}}),
    Task("17-archive", "search", "Archive every complaint of customer c-7 that has the status closed, and mail the user when "
         "all of that has succeeded.", MANY, (), {"user": USER}, config=SEARCH,
         wanted=("listComplaints", "archiveComplaint", "mail")),
    Task("18-remind", "search", "Send a reminder for each invoice of customer c-7 that has the status open.", MANY,
         (World({"listInvoices": BILLS, "remindDebtor": SENT},
                (effect("remindDebtor", invoiceId="v-1"), effect("remindDebtor", invoiceId="v-3"))),
          World({"listInvoices": BILLS[1:2], "remindDebtor": SENT})), {},
         (Earlier({"tools": ["listInvoices", "remindDebtor"], "calls": [], "output": None}, {}),), config=SEARCH),
    Task("19-table", "missing", "Reserve a table at Vincents for our guests tonight, and text the user the code.", (TABLE, SMS),
         (World({"reserveTable": {"code": "K-7"}, "sendSms": SENT}, (), output=lambda o: any(
             word in str(o).lower() for word in ("guests", "people", "persons", "party", "number", "how many"))),),
         {"user": USER}, watched=("reserveTable", "sendSms")),
    Task("20-parcel", "outcomes", "Charge the card of the input with its amount, dispatch the goods of that payment, and answer "
         "with the tracking number and the day of arrival.", (CHARGE, DISPATCH),
         (World({}, (), output={"tracking": "TR-8", "day": "Friday"}),), {"input": {"card": "card-1", "amount": 50}},
         (Earlier(CHARGED, {"charge": PAID, "dispatch": {"tracking": "TR-8", "day": "Friday"}}),),
         watched=("charge", "dispatch"), schema=record(tracking=TEXT, day=TEXT)),
)  # fmt: skip
