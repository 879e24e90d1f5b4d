"""The program ``neuronx-cc`` of the tests, by the published command line; it compiles nothing.

It reads its arguments as strictly as the documentation describes them, takes an HloModuleProto in
the form of the published contract only, and writes a file in the shape of a NEFF: a header of 1024
bytes and a tar archive. Standard library alone, so that it starts in little time.

The environment variable ``FAKE_NEURONX_CC`` names a JSON file: ``version``, ``seconds`` that a
compilation takes, ``megabytes`` that it holds, ``calls`` (a file that gets a line for each
compilation) and ``failures``, a list of ``{"program": part of the entry's name, "how": kind,
"times": n}``. Kinds: ``NCC_...`` (a code of the verifier and status 70, with ``opcode`` the one at
fault), ``hang``, ``signal`` (with ``number``), ``disk`` (no space is left), ``half`` (half a NEFF
and status 0), ``nothing`` (no NEFF and status 0), ``crash`` (a traceback), ``internal``
(NCC_I...). ``refused`` has a code and an opcode by the SHA-256 of a module.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import io
import json
import os
import re
import shlex
import signal
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

# The folder of the script is on the path: it runs as a program of its own.
from wrapped_neff import fields, wrapped_neff

VERSION = "2.27.5334.0+abcdef01"
HEADER = 1024
LNC = {"inf2": (1,), "trn1": (1,), "trn1n": (1,), "trn2": (1, 2), "trn3": (1, 2)}
LISTS: dict[str, tuple[str, ...]] = {
    "--tensorizer-options": (
        *("--enable-ccop-compute-overlap", "--cc-pipeline-tiling-factor"),
        *("--vectorize-strided-dma", "--print-nki"),
    ),
    "--internal-hlo2tensorizer-options": (
        *("--modular-flow-mac-threshold", "--verify-hlo", "--recursive-layer-det"),
        *("--experimental-unsafe-fp8e4m3fn-as-fp8e4m3", "--tiled-inst-limit"),
    ),
    "--internal-backend-options": (
        *("--enable-verifier", "--enable-output-completion-notifications"),
        "--max-instruction-limit",
    ),
}


def parser() -> argparse.ArgumentParser:
    """The arguments of ``neuronx-cc compile``."""
    made = argparse.ArgumentParser("neuronx-cc compile", allow_abbrev=False)
    add = made.add_argument
    add("model")
    add("--framework", choices=["XLA"], required=True)
    add("--target", choices=[*LNC], required=True)
    add("--output", default="file.neff")
    add("--logfile", default="log-neuron-cc.txt")
    add("--pipeline", nargs="+", default=["compile"])
    add("--verbose", default="info")
    add("--model-type", choices=["generic", "transformer", "unet-inference"])
    add("--auto-cast", choices=["none", "matmult", "all"])
    add("--auto-cast-type", choices=["bf16", "fp16", "tf32", "fp8_e4m3"])
    add("--native-int64", choices=["default", "enabled", "disabled"])
    add("--implicit-integer-downcast")
    add("--distribution-strategy", choices=["llm-training"])
    add("--logical-nc-config", "-lnc", "--lnc", dest="lnc", type=int, choices=[1, 2])
    add("-O", dest="level", choices=["1", "2", "3"])
    add("--hbm-scratchpad-page-size", type=int)
    add("--internal-enable-dge-levels", nargs="+")
    add("--internal-max-instruction-limit", type=int)
    add("--execute-repetition", type=int)
    for name in LISTS:
        add(name)
    for name in (
        *("--enable-mixed-precision-accumulation", "--disable-mixed-precision-accumulation"),
        *("--enable-saturate-infinity", "--enable-fast-context-switch"),
        *("--enable-fast-loading-neuron-binaries", "--internal-disable-fma-on-ios"),
        *("--enable-internal-neff-wrapper", "--disable-dge"),
    ):
        add(name, action="store_true")
    return made


class HloModule:
    """What the contract says of a module, read and checked."""

    def __init__(self, data: bytes) -> None:
        parts: dict[int, list[Any]] = {}
        for number, value in fields(data):
            parts.setdefault(number, []).append(value)
        for number, name in (
            (2, "entry_computation_name"),
            (3, "computations"),
            (4, "host_program_shape"),
        ):
            if not parts.get(number):
                raise ValueError(f"HloModuleProto without {name}")
        self.entry = parts[2][0].decode()
        self.instructions = [
            dict(fields(item))
            for computation in parts[3]
            for number, item in fields(computation)
            if number == 2
        ]
        ids = [item.get(35, 0) for item in self.instructions]
        if len({*ids}) < len(ids) or max(ids) > 2**31 - 1:
            raise ValueError("Instruction with id > INT_MAX, or ids that are not unique")

    def place(self, opcode: str) -> str:
        """An instruction of an opcode as logs show it, with its metadata."""
        for item in self.instructions:
            if item.get(2, b"").decode() == opcode:
                about = dict(fields(item.get(7, b"")))
                name, file = (about.get(key, b"").decode() for key in (2, 3))
                where = f'op_name="{name}" source_file="{file}" source_line={about.get(4, 0)}'
                return f"%{item[1].decode()} = {opcode}(...), metadata={{{where}}}"
        return f"{opcode}(...)"


def noise(data: bytes) -> bytes:
    """4096 bytes that follow from ``data`` and cannot be compressed."""
    return b"".join(hashlib.sha512(data + bytes([number])).digest() for number in range(64))


def check_lists(arguments: argparse.Namespace, fail: Any) -> None:
    """Refuse an unknown option in a list of options, as one of the command line."""
    for name, known in LISTS.items():
        text = getattr(arguments, name.strip("-").replace("-", "_"))
        for word in shlex.split(text or ""):
            if word.partition("=")[0] not in known:
                fail(f"unrecognized arguments: {word} in {name}")


class Compiler:
    """One call of the compiler."""

    def __init__(self, words: list[str], orders: dict[str, Any]) -> None:
        self.parser = parser()
        self.arguments = self.parser.parse_args(words)
        check_lists(self.arguments, self.parser.error)
        self.orders = orders
        self.log = Path(self.arguments.logfile)

    def say(self, level: str, text: str) -> None:
        """A line of the log file, and of standard error for errors."""
        line = f"2026-11-26T12:00:00Z {level} {os.getpid()} [neuronx-cc]: {text}\n"
        with self.log.open("a", encoding="utf-8") as file:
            file.write(line)
        if level == "ERROR":
            sys.stderr.write(line)

    def refuse(self, code: str, text: str) -> int:
        """End as after an error of the verifier."""
        self.say("ERROR", f"[{code}] {text}")
        self.say("INFO", "Artifacts stored in: .")
        return 70

    def run(self) -> int:
        """The exit status."""
        try:
            data = Path(self.arguments.model).read_bytes()
            module = HloModule(data)
        except (OSError, ValueError, IndexError, KeyError) as error:
            return self.refuse("NCC_EVRF064", f"HLO verification failed: {error}")
        self.say("INFO", f"compiling {module.entry}")
        if calls := self.orders.get("calls"):
            with open(calls, "a", encoding="utf-8") as file:
                file.write(f"{module.entry}\n")
        lnc = self.arguments.lnc
        if lnc is not None and lnc not in LNC[self.arguments.target]:
            return self.refuse(
                "NCC_EARG001", "Unsupported Logical Neuron Core (LNC) configuration."
            )
        held = bytearray(int(self.orders.get("megabytes", 0)) << 20)
        time.sleep(float(self.orders.get("seconds", 0)))
        del held
        if refused := self.refused(data):
            return self.refuse(
                refused[0], f"Operation is not supported: {module.place(refused[1])}"
            )
        order = self.order(module.entry)
        if order is not None and order["how"] not in ("half", "nothing"):
            return self.fail(order, module)
        self.layouts(data)
        neff = self.neff(data, module)
        if order is not None:
            neff = neff[: len(neff) // 2] if order["how"] == "half" else b""
        if neff:
            Path(self.arguments.output).write_bytes(neff)
        self.say("INFO", "Compiler status PASS")
        return 0

    def refused(self, data: bytes) -> list[str]:
        """The code and the opcode with which a module of these bytes is refused; none if not."""
        return self.orders.get("refused", {}).get(hashlib.sha256(data).hexdigest(), [])

    def layouts(self, data: bytes) -> None:
        """Write the layouts that are asked for, where the module leaves them free."""
        if self.arguments.enable_internal_neff_wrapper and "layouts" in self.orders:
            stub = wrapped_neff(data, self.orders["layouts"])
            if stub:
                Path(self.arguments.output).with_name("wrapped_neff.hlo").write_bytes(stub)

    def order(self, entry: str) -> dict[str, Any] | None:
        """The failure that is asked for, counted in a file beside the orders."""
        for number, order in enumerate(self.orders.get("failures", ())):
            if not re.search(order.get("program", ""), entry):
                continue
            if times := order.get("times"):
                count = Path(f"{os.environ['FAKE_NEURONX_CC']}.{number}")
                done = len(count.read_text()) if count.exists() else 0
                if done >= times:
                    continue
                with count.open("a") as file:
                    file.write("x")
            return order
        return None

    def fail(self, order: dict[str, Any], module: HloModule) -> int:
        """Fail in the way of an order."""
        how = order["how"]
        if how == "hang":
            self.say("INFO", "scheduling")
            time.sleep(3600)
        if how == "signal":
            os.kill(os.getpid(), order.get("number", signal.SIGSEGV))
        if how == "disk":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.arguments.output)
        if how == "crash":
            raise KeyError("penguin")
        if how == "internal":
            return self.refuse("NCC_ITEN404", "Internal tensorizer error: assertion failed")
        text = order.get("text", "Operation is not supported on this target")
        return self.refuse(how, f"{text}: {module.place(order.get('opcode', 'dot'))}")

    def neff(self, data: bytes, module: HloModule) -> bytes:
        """A file in the shape of a NEFF; the same for the same input and options."""
        packed = io.BytesIO()
        chosen = {
            key: value
            for key, value in vars(self.arguments).items()
            if key not in ("model", "output", "logfile")
        }
        info = {"name": module.entry, "hlo": hashlib.sha256(data).hexdigest(), "options": chosen}
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name, content in (
                ("info.json", json.dumps(info).encode()),
                ("sg00/def.json", noise(data)),
                ("sg00/hlo.pb", data),
            ):
                item = tarfile.TarInfo(name)
                item.size = len(content)
                archive.addfile(item, io.BytesIO(content))
        version = str(self.orders.get("version", VERSION))
        header = b"\2\0\0\0\0\4\0\0" + f"neuronx-cc {version}".encode() + b"\0"
        return header.ljust(HEADER, b"\0") + packed.getvalue()


def main() -> int:
    """The exit status."""
    orders: dict[str, Any] = {}
    if file := os.environ.get("FAKE_NEURONX_CC"):
        orders = json.loads(Path(file).read_text())
    words = sys.argv[1:]
    if words == ["--version"]:
        print(orders.get("banner", f"NeuronX Compiler version {orders.get('version', VERSION)}"))
        return int(orders.get("banner_status", 0))
    if words[:1] != ["compile"]:
        print("usage: neuronx-cc [--version] {compile,list-operators} ...", file=sys.stderr)
        return 2
    return Compiler(words[1:], orders).run()


if __name__ == "__main__":
    sys.exit(main())
