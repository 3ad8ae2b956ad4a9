"""Keeps a process from reaching anything but this machine, whichever library asks for it."""

import asyncio
import errno
import socket
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from ipaddress import IPv4Address, IPv6Address, ip_address
from types import ModuleType
from typing import Any, cast

_LOOK_UPS = frozenset({"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"})
_SENDS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_INTERNET = (socket.AF_INET, socket.AF_INET6)
# On this machine by their nature: other processes, and the kernel, which is asked about network interfaces.
_LOCAL = tuple(getattr(socket, name) for name in ("AF_UNIX", "AF_NETLINK") if hasattr(socket, name))
_FOREIGN_LOOPS = ("uvloop", "winloop")
_FOREIGN_RESOLVERS = ("aiodns", "pycares")  # aiohttp looks names up with Python's own where these are missing


def stay_here(refused: Callable[[str], None]) -> None:
    """Refuse, until the process ends, every look-up and every connection that is not of this machine.

    Names of other machines are not even looked up. What a library in C does without Python's sockets (libcurl, gRPC,
    the client libraries of some databases) and other programs that are started cannot be held back in this way.

    Args:
        refused: Told once for each host that was refused, in whichever thread it happens.
    """
    seen: set[str] = set()

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if event in _LOOK_UPS:
            host = given[0]
        elif event in _SENDS:
            host = _remote(given[0], given[1])
        else:
            return
        if is_here(host):
            return
        name = _text(host)
        if name not in seen:
            seen.add(name)
            refused(name)
        raise ConnectionRefusedError(errno.ECONNREFUSED, f"only this machine can be reached here, not {name}")

    _use_plain_loops()
    cast("dict[str, object]", sys.modules).update(dict.fromkeys(_FOREIGN_RESOLVERS))  # None: cannot be imported
    sys.addaudithook(hook)


def is_here(host: object) -> bool:
    """Tell whether a name or an address is one of this machine.

    Args:
        host: As the functions of `socket` take it: text, bytes, or None for whatever is local.
    """
    name = _text(host).rstrip(".").lower()
    if name in _own_names() or name.endswith(".localhost"):
        return True
    address = _address(name)
    return address is not None and (address.is_loopback or address.is_unspecified or address in _own_addresses())


def _text(host: object) -> str:
    if host is None:
        return ""
    return bytes(host).decode("utf-8", "replace") if isinstance(host, (bytes, bytearray)) else str(host)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


@cache
def _own_names() -> frozenset[str]:
    whole = socket.gethostname().lower()
    short = whole.partition(".")[0]
    return frozenset({"", "localhost", "localhost.localdomain", "ip6-localhost", whole, short, f"{short}.local"})


@cache
def _own_addresses() -> frozenset[IPv4Address | IPv6Address]:
    """Look up where the machine's own name leads; asked only about an address that is not loopback."""
    try:
        found = socket.getaddrinfo(socket.gethostname(), None)
    except OSError:
        return frozenset()
    addresses = (_address(str(one[4][0])) for one in found)
    return frozenset(address for address in addresses if address is not None)


def _remote(endpoint: socket.socket, address: object) -> object:
    """Name the host that a socket is to send to; nothing where that is local by its nature."""
    if address is None or endpoint.family in _LOCAL:
        return None
    if endpoint.family in _INTERNET:
        return cast("tuple[object, ...]", address)[0]
    return f"{endpoint.family!s} {address!r}"


def _use_plain_loops() -> None:
    """Put asyncio's own event loop in the place of those written in C, whose connections no hook sees."""
    for name in _FOREIGN_LOOPS:
        if name in sys.modules or find_spec(name) is None:
            continue
        plain: Any = ModuleType(name, "asyncio's own event loop")
        plain.Loop = type("Loop", (asyncio.SelectorEventLoop,), {})
        plain.new_event_loop = asyncio.new_event_loop
        plain.EventLoopPolicy = asyncio.DefaultEventLoopPolicy
        plain.install = _nothing
        plain.run = asyncio.run
        plain.__version__ = "0"
        sys.modules[name] = plain


def _nothing() -> None:
    """Done already."""
