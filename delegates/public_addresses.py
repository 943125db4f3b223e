"""Which IP addresses are public. Every address that a host name resolves to is checked here, and only here.

The tables are IANA's registries of special-purpose addresses. ``ipaddress.is_global`` is not used: its answer depends
on the patch version of Python.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

_NOT_PUBLIC_4: Final = tuple(
    (IPv4Network(network), kind)
    for network, kind in {
        "0.0.0.0/8": "unspecified",
        "10.0.0.0/8": "private",
        "100.64.0.0/10": "shared (carrier-grade NAT)",
        "127.0.0.0/8": "loopback",
        "169.254.0.0/16": "link-local",  # clouds serve the credentials of a machine here
        "168.63.129.16/32": "of the cloud itself",  # the same on Azure
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
    (IPv6Network(network), kind)
    for network, kind in {
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
# The only addresses assigned to hosts on the internet so far; the others are reserved
_PUBLIC_6: Final = IPv6Network("2000::/3")
# A gateway turns these into the IPv4 address in their last 32 bits
_NAT64: Final = IPv6Network("64:ff9b::/96")
_LAST_32_BITS: Final = 0xFFFF_FFFF


def why_not_public(address: str) -> str | None:
    """The kind of an address that is not public; None for a public one.

    IPv4 inside IPv6 (mapped, NAT64) counts as the IPv4 address that it leads to.
    """
    try:
        ip = ip_address(address)
    except ValueError:
        return "no address"
    if isinstance(ip, IPv4Address):
        return _kind_of_ipv4(ip)
    inner = _ipv4_inside(ip)
    if inner is None:
        return _kind_of_ipv6(ip)
    kind = _kind_of_ipv4(inner)
    return f"{inner} in IPv6, which is {kind}" if kind else None


def _kind_of_ipv4(address: IPv4Address) -> str | None:
    return next((kind for network, kind in _NOT_PUBLIC_4 if address in network), None)


def _kind_of_ipv6(address: IPv6Address) -> str | None:
    kind = next((kind for network, kind in _NOT_PUBLIC_6 if address in network), None)
    return kind or (None if address in _PUBLIC_6 else "reserved")


def _ipv4_inside(address: IPv6Address) -> IPv4Address | None:
    if address in _NAT64:
        return IPv4Address(int(address) & _LAST_32_BITS)
    return address.ipv4_mapped
