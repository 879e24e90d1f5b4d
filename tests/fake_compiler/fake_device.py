"""A device for the stand-in of ``libnrt.so``: what NEFFs of the fake compiler hold, run by XLA."""

from __future__ import annotations

import hashlib
import io
import socket
import struct
import subprocess
import tarfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from graphgen.eval import Array, evaluate, numpy_dtype
from graphgen.ir import Module
from graphgen.lowering.hlo.read import read_hlo
from tests.oracles import xla_hlo

SOURCE = Path(__file__).with_name("fake_nrt.c")
HEADER = 1024
CRASH = 255


class FakeDevice:
    """Serves one connection after the other.

    Args:
        root: a folder for the library and the socket.

    Attributes:
        orders: by the SHA-256 of an HLO: ``hang``, ``crash``, ``lost`` (a crash, after which the
            device cannot be opened), ``wrong``, or a status.
        runs: counts by how a program was run, ``xla`` or ``reference``.
    """

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True)
        self.library = root / "libnrt.so"
        words = ["cc", "-shared", "-fPIC", "-O1", "-w", "-o", str(self.library), str(SOURCE)]
        subprocess.run(words, check=True)
        self.address = root / "device"
        self.orders: dict[str, str | int] = {}
        self.runs = {"xla": 0, "reference": 0}
        self._models: list[tuple[bytes, Module]] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(self.address))
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a kit finds it."""
        return {
            "FAKE_NEURON_DEVICE": str(self.address),
            "GRAPHGEN_KIT_LIBNRT": str(self.library),
        }

    def close(self) -> None:
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        # A kit ends programs that take too long, also while they wait for a result.
        with suppress(ConnectionError), connection, connection.makefile("rb") as file:
            while kind := file.read(1):
                if kind == b"L":
                    connection.sendall(self._load(_whole(file, _number(file))))
                else:
                    self._execute(connection, file)

    def _load(self, neff: bytes) -> bytes:
        with tarfile.open(fileobj=io.BytesIO(neff[HEADER:]), mode="r:gz") as archive:
            member = archive.extractfile("sg00/hlo.pb")
            assert member is not None
            hlo = member.read()
        module = read_hlo(hlo)
        self._models.append((hlo, module))
        function = module.programs()[0] if module.programs() else [*module.functions.values()][-1]
        rows = [(f"input{i}", 0, v.type) for i, v in enumerate(function.args)]
        rows += [(f"output{i}", 1, v.type) for i, (_, v) in enumerate(function.outputs)]
        out = [struct.pack("<QQ", len(self._models), len(rows))]
        for name, usage, type_ in rows:
            size = numpy_dtype(type_.dtype).itemsize * int(np.prod(type_.dims, dtype=int))
            out.append(name.encode().ljust(256, b"\0") + struct.pack("<QQ", usage, size))
        return b"".join(out)

    def _execute(self, connection: socket.socket, file: Any) -> None:
        hlo, module = self._models[_number(file) - 1]
        function = module.programs()[0] if module.programs() else [*module.functions.values()][-1]
        inputs: dict[str, Array] = {}
        for value in function.args:
            kind = numpy_dtype(value.dtype)
            data = _whole(file, kind.itemsize * int(np.prod(value.type.dims, dtype=int)))
            inputs[value.name or ""] = np.frombuffer(data, kind).reshape(value.type.dims)
        order = self.orders.get(hashlib.sha256(hlo).hexdigest(), 0)
        if order == "hang":
            time.sleep(3600)
        if order == "lost":
            self.address.rename(self.address.with_name("lost"))
            order = "crash"
        if order == "crash" or (isinstance(order, int) and order):
            connection.sendall(struct.pack("<Q", CRASH if order == "crash" else order))
            return
        found = self._run(hlo, module, function, inputs)
        data = [np.ascontiguousarray(array).tobytes() for array in found]
        if order == "wrong":
            data = [bytes(byte ^ 0x40 for byte in item) for item in data]
        connection.sendall(struct.pack("<Q", 0) + b"".join(data))

    def _run(
        self, hlo: bytes, module: Module, function: Any, inputs: Mapping[str, Array]
    ) -> list[Array]:
        """By XLA on this CPU; what it does not know, such as Neuron's custom calls, by NumPy."""
        try:
            made = xla_hlo.run(hlo, [list(inputs.values())])[0]
            self.runs["xla"] += 1
            return made
        except Exception:  # XLA's errors have no class in common
            self.runs["reference"] += 1
            with np.errstate(all="ignore"):
                return list(evaluate(function, inputs, module=module).values())


def _number(file: Any) -> int:
    return struct.unpack("<Q", _whole(file, 8))[0]


def _whole(file: Any, size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise ConnectionError("the program has ended")
    return data
