"""Messages of the public HLO schema through protoc's own code, which shares nothing with ours."""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

SCHEMA = Path(__file__).with_name("hlo_contract.proto")


@cache
def generated() -> Any:
    """The Python module protoc makes of the schema; skips the test where it is not installed."""
    import pytest

    pytest.importorskip("google.protobuf", reason="needs protobuf, see requirements/dev.txt")
    protoc = pytest.importorskip("grpc_tools.protoc", reason="needs grpcio-tools, likewise")
    with tempfile.TemporaryDirectory() as folder:
        status = protoc.main(
            ["protoc", f"-I{SCHEMA.parent}", f"--python_out={folder}", SCHEMA.name]
        )
        assert status == 0
        file = Path(folder, "hlo_contract_pb2.py")
        spec = importlib.util.spec_from_file_location("hlo_contract_pb2", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def read(data: bytes) -> Any:
    """An HloModuleProto."""
    return generated().Module.FromString(data)


def unknown_fields(message: Any) -> int:
    """How many fields of a message the schema has no number for."""
    library = importlib.import_module("google.protobuf.unknown_fields")
    return len(library.UnknownFieldSet(message))
