"""Processes meet before JAX's runtime, or all learn which of them has not come."""

from __future__ import annotations

import socket
from concurrent.futures import Future, ThreadPoolExecutor

from graphgen.errors import GraphgenError
from graphgen.runtime.distributed.launch_plan import free_port
from graphgen.runtime.distributed.rendezvous import meet_at


def outcomes(places: list[tuple[int, int]], seconds: float, address: str) -> list[str]:
    """What each place, a count and an index, learns: an error's text or nothing."""

    def met(place: tuple[int, int]) -> str:
        try:
            meet_at(address, *place, seconds)
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


def test_other_clients_of_the_port_are_ignored():
    port = free_port()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(meet_at, f"127.0.0.1:{port}", 2, 0, 30)
        while True:
            try:
                with socket.create_connection(("127.0.0.1", port)) as stranger:
                    stranger.sendall(b"GET / HTTP/1.1\r\n\r\n\xff")
                break
            except OSError:
                continue
        meet_at(f"127.0.0.1:{port}", 2, 1, 30)
        waiting.result(60)
