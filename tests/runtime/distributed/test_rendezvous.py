"""Processes meet before JAX's runtime, or all learn which of them has not come."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.distributed import rendezvous
from graphgen.runtime.distributed.launch_plan import free_port
from graphgen.runtime.distributed.peers import MOST_SILENT, Peer, PeerListener, introduce
from graphgen.runtime.distributed.rendezvous import listening_at, meet_at

SECRET = "the secret of the tests"


def outcomes(places: list[tuple[int, int]], seconds: float, address: str) -> list[str]:
    """What each place, a count and an index, learns: an error's text or nothing."""

    def met(place: tuple[int, int]) -> str:
        try:
            meet_at(address, *place, seconds, SECRET)
        except GraphgenError as error:
            return f"{error.code}: {error.what}"
        return ""

    with ThreadPoolExecutor(len(places)) as pool:
        started: list[Future[str]] = [pool.submit(met, place) for place in places]
        return [each.result(60) for each in started]


def test_all_meet():
    address = f"127.0.0.1:{free_port()}"
    assert outcomes([(3, 2), (3, 0), (3, 1)], 30, address) == ["", "", ""]
    # The port is free for JAX afterwards.
    socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))).close()


def test_one_process_meets_at_once():
    assert outcomes([(1, 0)], 3600, f"127.0.0.1:{free_port()}") == [""]


def test_those_that_have_come_learn_who_has_not():
    address = f"127.0.0.1:{free_port()}"
    wanted = f"GG0708: processes 1, 3 of 4 did not come to {address} within 2 s"
    assert outcomes([(4, 0), (4, 2)], 2, address) == [wanted, wanted]


def test_nothing_answers():
    address = f"127.0.0.1:{free_port()}"
    (found,) = outcomes([(2, 1)], 0.3, address)
    assert found.startswith("GG0708: process 0 of 2 did not come: nothing answered process 1 at")


def test_launches_of_other_sizes_and_twice_the_same_place():
    address = f"127.0.0.1:{free_port()}"
    wanted = "GG0708: process 1 was started as one of 3, process 0 as one of 2"
    assert outcomes([(2, 0), (3, 1)], 30, address) == [wanted, wanted]
    address = f"127.0.0.1:{free_port()}"
    first, *_ = outcomes([(3, 0), (3, 1), (3, 1)], 30, address)
    assert first == "GG0708: two processes are process 1 of 3"


def connected(port: int) -> socket.socket:
    """A connection to a process 0 that is about to listen."""
    while True:
        with suppress(OSError):
            return socket.create_connection(("127.0.0.1", port))


def attack(line: bytes) -> Callable[[int, ExitStack], None]:
    """Send a line and end the connection."""

    def send(port: int, stack: ExitStack) -> None:
        with connected(port) as stranger, suppress(OSError):
            stranger.sendall(line)
            while stranger.recv(100):
                pass

    return send


def silence(port: int, stack: ExitStack) -> None:
    """More connections than are kept open, which say nothing until the end."""
    for _ in range(2 * MOST_SILENT):
        stack.enter_context(connected(port))


def half_a_line(port: int, stack: ExitStack) -> None:
    for _ in range(3):
        stack.enter_context(connected(port)).sendall(b"graphgen meet ")


def with_another_secret(port: int, stack: ExitStack) -> None:
    stranger = stack.enter_context(connected(port))
    with pytest.raises(OSError, match="closed the connection"):
        introduce(stranger, "another secret of tests", "meet", (2, 1), 30)


def repeated(port: int, stack: ExitStack) -> None:
    """What a peer has said before, at another connection."""
    with listening_at("127.0.0.1", 0) as listener, ThreadPoolExecutor(1) as pool:
        said = pool.submit(next, PeerListener(listener, SECRET, "meet").peers(30))
        with connected(listener.getsockname()[1]) as peer, suppress(OSError):
            introduce(peer, SECRET, "meet", (2, 1), 0.001)
        found: Peer = said.result(60)
        found.connection.close()
    attack(found.exchange.split(b"\n")[1] + b"\n")(port, stack)


ATTACKS: dict[str, Callable[[int, ExitStack], None]] = {
    "HTTP": attack(b"GET / HTTP/1.1\r\n\r\n\xff"),
    "the line of earlier versions": attack(json.dumps(["graphgen", 3, 1]).encode() + b"\n"),
    "another index": attack(json.dumps(["graphgen", 2, 99]).encode() + b"\n"),
    "true": attack(b'["graphgen", 2, true]\n'),
    "900 digits": attack(b'["graphgen", 2, ' + b"9" * 900 + b"]\n"),
    "990 brackets": attack(b"[" * 990 + b"\n"),
    "a long line": attack(b"graphgen " * 10_000),
    "no proof": attack(b"graphgen meet 3 1 " + b"0" * 32 + b" " + b"0" * 64 + b"\n"),
    "digits of the right form": attack(
        b"graphgen meet " + b"9" * 900 + b" 1 " + b"0" * 32 + b" " + b"0" * 64 + b"\n"
    ),
    "silence": silence,
    "half a line": half_a_line,
    "another secret": with_another_secret,
    "a repeated line": repeated,
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_stranger_does_not_end_a_launch(name: str):
    port = free_port()
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        waiting = pool.submit(meet_at, f"127.0.0.1:{port}", 2, 0, 60, SECRET, "127.0.0.1")
        ATTACKS[name](port, stack)
        meet_at(f"127.0.0.1:{port}", 2, 1, 60, SECRET)
        waiting.result(60)


def test_a_process_with_another_secret_is_told_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rendezvous, "_TRIES", 2)
    port = free_port()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(meet_at, f"127.0.0.1:{port}", 2, 0, 60, SECRET)
        connected(port).close()
        with pytest.raises(GraphgenError, match="process 1 of 2 was turned away at") as caught:
            meet_at(f"127.0.0.1:{port}", 2, 1, 60, "another secret of tests")
        assert caught.value.code == "GG0708"
        assert "GRAPHGEN_LAUNCH_SECRET" in str(caught.value)
        meet_at(f"127.0.0.1:{port}", 2, 1, 60, SECRET)
        waiting.result(60)


def test_a_process_does_not_believe_a_stranger_in_the_place_of_process_0(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(rendezvous, "_TRIES", 2)
    lines = [b"no random text\n", b"0" * 32 + b"\n" + b"0" * 64 + b" the launch is over\n"]
    with listening_at("127.0.0.1", 0) as listener, ThreadPoolExecutor(1) as pool:

        def pretend() -> None:
            for line in lines:
                with listener.accept()[0] as connection, suppress(OSError):
                    connection.sendall(line)
                    while connection.recv(100):
                        pass

        pretending = pool.submit(pretend)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(GraphgenError, match="does not know the secret of the launch"):
            meet_at(address, 2, 1, 60, SECRET)
        pretending.result(60)


def test_silent_connections_are_bounded():
    with listening_at("127.0.0.1", 0) as listener, ExitStack() as stack:
        peers = PeerListener(listener, SECRET, "meet").peers(60)
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(next, peers)
            guests = [
                stack.enter_context(connected(listener.getsockname()[1]))
                for _ in range(MOST_SILENT + 5)
            ]
            # The oldest are closed for those that come later.
            for pending in guests[:5]:
                while pending.recv(100):
                    pass
            assert introduced(listener, pool, first)
            for pending in guests[6:]:
                pending.setblocking(False)
                assert pending.recv(33).endswith(b"\n")
                with pytest.raises(BlockingIOError):
                    pending.recv(1)
        peers.close()


def introduced(listener: socket.socket, pool: ThreadPoolExecutor, first: Future[Peer]) -> bool:
    """Let a peer come beside the silent connections."""
    with connected(listener.getsockname()[1]) as peer:
        with suppress(OSError):
            introduce(peer, SECRET, "meet", (2, 1), 0.001)
        with first.result(60).connection:
            return True


def test_one_machine_listens_at_its_loopback_address_alone():
    with listening_at("127.0.0.1", 0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
    with listening_at("", 0) as listener:
        assert listener.getsockname()[0] in ("::", "0.0.0.0")
