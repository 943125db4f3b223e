"""Which addresses are public: what a host name leads to is judged here, and only here.

The tables are IANA's registries of special-purpose addresses. ``ipaddress.is_global``
is not asked, since its answer depends on the patch version of Python.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

_NOT_PUBLIC_4: Final = tuple(
    (IPv4Network(network), word)
    for network, word in {
        "0.0.0.0/8": "unspecified",
        "10.0.0.0/8": "private",
        "100.64.0.0/10": "shared (carrier-grade NAT)",
        "127.0.0.0/8": "loopback",
        "169.254.0.0/16": "link-local",  # where clouds keep the credentials of a machine
        "168.63.129.16/32": "of the cloud itself",  # the same on Azure, though the address looks public
        "172.16.0.0/12": "private",
        "192.0.0.0/24": "reserved",
        "192.0.2.0/24": "reserved for documentation",
        "192.88.99.0/24": "reserved (6to4 relays)",
        "192.168.0.0/16": "private",
        "198.18.0.0/15": "reserved for benchmarks",
        "198.51.100.0/24": "reserved for documentation",
        "203.0.113.0/24": "reserved for documentation",
        "224.0.0.0/4": "multicast",
        "240.0.0.0/4": "reserved",
    }.items()
)

_NOT_PUBLIC_6: Final = tuple(
    (IPv6Network(network), word)
    for network, word in {
        "::/128": "unspecified",
        "::1/128": "loopback",
        "64:ff9b:1::/48": "private (local NAT64)",
        "2001::/23": "reserved (Teredo and other protocols)",
        "2001:db8::/32": "reserved for documentation",
        "2002::/16": "6to4, which may lead to any IPv4 address",
        "3fff::/20": "reserved for documentation",
        "fc00::/7": "private",
        "fe80::/10": "link-local",
        "fec0::/10": "private (site-local)",
        "ff00::/8": "multicast",
    }.items()
)
# All that is handed out to hosts on the internet so far; the rest has no meaning yet, or one of its own
_PUBLIC_6: Final = IPv6Network("2000::/3")
# A gateway turns these into the IPv4 address in their last 32 bits
_NAT64: Final = IPv6Network("64:ff9b::/96")
_LAST_32_BITS: Final = 0xFFFF_FFFF


def why_not_public(address: str) -> str | None:
    """What kind of address it is, when it is not a public one; else None.

    IPv4 inside IPv6 (mapped, NAT64) is judged as the IPv4 address that it leads to.
    """
    try:
        found = ip_address(address)
    except ValueError:
        return "no address"
    if isinstance(found, IPv6Address):
        inner = _inside(found)
        if inner is None:
            return _six(found)
        why = _four(inner)
        return f"{inner} in IPv6, which is {why}" if why else None
    return _four(found)


def _four(address: IPv4Address) -> str | None:
    return next((word for network, word in _NOT_PUBLIC_4 if address in network), None)


def _six(address: IPv6Address) -> str | None:
    word = next((word for network, word in _NOT_PUBLIC_6 if address in network), None)
    return word or (None if address in _PUBLIC_6 else "reserved")


def _inside(address: IPv6Address) -> IPv4Address | None:
    if address in _NAT64:
        return IPv4Address(int(address) & _LAST_32_BITS)
    return address.ipv4_mapped
