"""A session repeats the calls of another one, which come through a connection."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from graphgen.cli.launched_inputs import check_model_options
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Role
from graphgen.runtime.distributed.led_session import END, CallSender, received_calls
from graphgen.runtime.engine import EngineOptions
from graphgen.runtime.session.devices import DeviceCall
from graphgen.runtime.session.session import Session
from graphgen.runtime.session.step_call import packed
from tests.oracles.llama import write_llama
from tests.oracles.sessions import open_session
from tests.runtime.session.lora_checkpoint import random_adapter, with_adapters, write_model

SECRET = "the secret of the tests"


def caches(session: Session) -> dict[str, np.ndarray]:
    rows = session.module.entries(Role.STATE)
    return {row.name: np.asarray(session.state(row.name)) for row in rows}


def test_a_session_that_repeats_the_calls_of_another_has_its_caches(tmp_path: Path):
    write_llama(tmp_path)
    settings = CompileConfig(batch=(3,), context=(), tokens=(16,), page_cache=4)
    first = open_session(tmp_path, settings)
    second = Session(first.programs, first.weights)
    sender, calls = CallSender(1, SECRET, "127.0.0.1"), list[DeviceCall]()
    # A connection of somebody else comes first.
    with socket.create_connection(("127.0.0.1", sender.port)) as other:
        other.sendall(b"0" * 32)
        received = received_calls("127.0.0.1", sender.port, SECRET, (2, 1))
        reader = Thread(target=lambda: calls.extend(received))
        reader.start()
        sender.accept()
    first.devices.listener = sender.send
    first.reset()
    first.assign_blocks(0, [2, 0])
    first.assign_blocks(1, [1])
    first.step(*packed([[5, 6, 7, 8, 9], [3]]), [0, 1])
    first.copy_block(1, 3)
    first.step(*packed([[4]], [5]), [0])
    sender.send(DeviceCall(END))
    reader.join()
    sender.close()
    assert [call.kind for call in calls[:3]] == ["empty", "use_layout", "use_layout"]
    for call in calls:
        second.devices.repeat(call)
    wanted = caches(first)
    assert any(cache.any() for cache in wanted.values())
    for name, found in caches(second).items():
        np.testing.assert_array_equal(found, wanted[name])


def test_a_connection_that_ends_early_is_an_error():
    sender = CallSender(1, SECRET, "127.0.0.1")
    found: list[Exception] = []

    def read() -> None:
        try:
            list(received_calls("127.0.0.1", sender.port, SECRET, (2, 1)))
        except EOFError as error:
            found.append(error)

    reader = Thread(target=read)
    reader.start()
    sender.accept()
    sender.close()
    reader.join()
    assert found


def test_adapters_are_written_in_every_process(tmp_path: Path):
    write_model(tmp_path)
    first = open_session(tmp_path, with_adapters(slots=2))
    second = Session(first.programs, first.weights)
    assert first.adapters is not None
    assert second.adapters is not None
    calls: list[DeviceCall] = []
    first.devices.listener = calls.append
    first.adapters.warm_up()
    first.adapters.write(1, random_adapter(first.adapters, 3))
    for call in calls:
        second.devices.repeat(call)
    for name, value in first.adapters.values.items():
        assert np.asarray(value)[1].any()
        np.testing.assert_array_equal(np.asarray(second.adapters.values[name]), np.asarray(value))


def test_options_that_processes_cannot_share_are_refused():
    options = EngineOptions(CompileConfig.of(pp_degree=2), async_mode=True)
    what = "--async-mode with --pp-degree does not work in several processes"
    with pytest.raises(GraphgenError, match=what):
        check_model_options("model", options)
    check_model_options("model", replace(options, async_mode=False))


def test_an_artifact_has_to_be_there(tmp_path: Path):
    with pytest.raises(GraphgenError, match="several processes do not make one"):
        check_model_options("model", EngineOptions(artifact=tmp_path / "none"))
