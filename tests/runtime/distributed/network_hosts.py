"""Two hosts on this machine: network namespaces with a cable between them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from uuid import uuid4

import pytest

# Of the first host, on the cable; nothing outside of the namespaces has a way to it.
ADDRESS, OTHER = "10.213.77.1", "10.213.77.2"
_CABLE = "cable0"


@dataclass(frozen=True, slots=True)
class TwoHosts:
    """The names of two namespaces."""

    first: str
    second: str

    def words(self, host: int) -> list[str]:
        """The beginning of a command that runs on a host."""
        return ["ip", "netns", "exec", (self.first, self.second)[host]]

    def set_cable(self, state: str) -> None:
        """Set the cable ``up`` or ``down``, at the end of the first host."""
        _ip("-n", self.first, "link", "set", _CABLE, state)


@contextmanager
def two_hosts() -> Generator[TwoHosts]:
    """Two hosts while the block runs; what still runs on them is killed at its end.

    The test is skipped where the machine has no namespaces to give.
    """
    if shutil.which("ip") is None or not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("network namespaces need iproute2 and root")
    name = f"gg{uuid4().hex[:8]}"
    hosts = TwoHosts(f"{name}a", f"{name}b")
    try:
        try:
            _connect(hosts)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
        yield hosts
    finally:
        for host in (hosts.first, hosts.second):
            _remove(host)


def _connect(hosts: TwoHosts) -> None:
    for host in (hosts.first, hosts.second):
        _ip("netns", "add", host)
        _ip("-n", host, "link", "set", "lo", "up")
        _ip("netns", "exec", host, "true")
    end = ("peer", "name", _CABLE, "netns", hosts.second)
    _ip("-n", hosts.first, "link", "add", _CABLE, "type", "veth", *end)
    for host, address in ((hosts.first, ADDRESS), (hosts.second, OTHER)):
        _ip("-n", host, "address", "add", f"{address}/30", "dev", _CABLE)
        _ip("-n", host, "link", "set", _CABLE, "up")


def _remove(host: str) -> None:
    """Kill what runs on a host, and remove it if it is there."""
    running = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True)
    for pid in running.stdout.split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", host], capture_output=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=60)
