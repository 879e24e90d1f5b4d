"""Values of the coordinator's store, which strangers can write to, are read with care."""

from __future__ import annotations

from typing import Any, cast

import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.distributed.led_session import port_of
from graphgen.runtime.distributed.process_group import LaunchPlace, ProcessGroup
from graphgen.runtime.distributed.process_watch import BEATS, FAILURES, ProcessWatch

DEEP = "[" * 200_000


class Store:
    """A store with given values, instead of the coordinator's."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values

    def set(self, key: str, value: str) -> None:
        self.values[key] = value

    def wait(self, key: str, seconds: float) -> str:
        return self.values[key]

    def folder(self, key: str) -> dict[str, str]:
        return {
            name.removeprefix(f"{key}/"): value
            for name, value in self.values.items()
            if name.startswith(f"{key}/")
        }

    def barrier(self, name: str, seconds: float) -> None:
        return


def group(values: dict[str, str], index: int) -> ProcessGroup:
    place = LaunchPlace("127.0.0.1:1", 2, index, 1, 1e6, 1)
    made = ProcessGroup(cast(Any, Store(values)), place, lambda error: None)
    made._watch.stop()  # pyright: ignore[reportPrivateUsage]
    return made


def losses(values: dict[str, str], rounds: int = 1) -> list[str]:
    """What the watch of process 0 of 3 loses in some of its rounds."""
    found: list[str] = []
    store = cast(Any, Store(values))
    watch = ProcessWatch(store, 3, 0, 1e6, lambda error: found.append(error.what))

    class Rounds:
        """As many rounds without a wait, until something is lost."""

        left = rounds

        def wait(self, _: float) -> bool:
            self.left -= 1
            return self.left < 0 or bool(found)

        def is_set(self) -> bool:
            return bool(found)

        def set(self) -> None:
            return

    vars(watch).update(_ended=Rounds())
    watch._talk()  # pyright: ignore[reportPrivateUsage]
    assert values[f"{BEATS}/0"]
    return found


@pytest.mark.parametrize("name", ["text", "", "²", "9" * 5000, "-1", "3", "01", "0"])
def test_a_failure_of_no_process_does_not_end_the_watch(name: str):
    assert losses({f"{FAILURES}/{name}": "forged"}, rounds=2) == []


def test_a_failure_of_another_process_does():
    values = {f"{FAILURES}/text": "forged", f"{FAILURES}/2": "it ended with GG0601"}
    assert losses(values) == ["process 2 of 3 is lost: it ended with GG0601"]


@pytest.mark.parametrize("text", ["", "{", DEEP, "[]", "3", '["a"]', "9" * 5000])
def test_a_record_that_is_none_is_an_error_that_names_the_process(text: str):
    made = group({"graphgen/program-1/1": text}, 0)
    with pytest.raises(GraphgenError, match="the words of process 1 cannot be read") as caught:
        made.agree("program", {"a": "1"})
    assert caught.value.code == "GG0709"
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text", ["", "{}", DEEP, "[1]", "[1, 2, 3]", "9" * 5000])
def test_inputs_that_are_none_are_an_error(text: str):
    made = group({"graphgen/inputs/prompts-1": text}, 1)
    with pytest.raises(GraphgenError, match="the words of process 0 cannot be read") as caught:
        made.shared_values("prompts", [["a"], 2])
    assert caught.value.code == "GG0709"


def test_inputs_are_those_of_process_0():
    store: dict[str, str] = {}
    assert group(store, 0).shared_values("prompts", [["a"], 2]) == [["a"], 2]
    assert group(store, 1).shared_values("prompts", [["b"], 3]) == [["a"], 2]


@pytest.mark.parametrize("text", ["", "0", "65536", "²", "٣", "-1", "9" * 5000, "[80]", " 80"])
def test_a_text_that_is_no_port_is_an_error(text: str):
    with pytest.raises(ConnectionError, match="is not a port"):
        port_of(text)
    assert port_of("65535") == 65535
