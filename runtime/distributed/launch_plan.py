"""The processes of a launch from flags and from the variables of torchrun and of AWS."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex

from graphgen.atomic_write import read_regular, unreadable
from graphgen.errors import GraphgenError
from graphgen.limits import RANKS
from graphgen.numbers import is_digits
from graphgen.runtime.distributed.process_group import PLACE, LaunchPlace
from graphgen.runtime.distributed.rendezvous import listening_at
from graphgen.runtime.signing import signature

# The variable of the secret by which the processes of a launch know each other.
SECRET = "GRAPHGEN_LAUNCH_SECRET"
# Characters of a secret at least, and bytes of its file at most.
_LEAST, _MOST = 16, 4096


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The processes of all nodes, and those of this one.

    Attributes:
        nodes: number of nodes.
        per_node: processes of each.
        node: index of this node; process 0 is on node 0.
        host, port: of the coordinator, which is in process 0.
        silence: seconds without a sign of life after which a process is lost.
        start: seconds to wait for the processes to start.
        secret: by which the processes know each other.
    """

    nodes: int
    per_node: int
    node: int
    host: str
    port: int
    silence: float
    start: int
    secret: str = field(default="", repr=False)

    @property
    def world(self) -> int:
        """Number of processes."""
        return self.nodes * self.per_node

    @property
    def local(self) -> range:
        """The processes of this node."""
        return range(self.node * self.per_node, (self.node + 1) * self.per_node)

    def variables(self, index: int) -> dict[str, str]:
        """The environment of the process ``index``, beside that of the launch."""
        address = f"{self.host}:{self.port}"
        listen = self.listen_address() if index == 0 else ""
        place = LaunchPlace(
            *(address, self.world, index, self.nodes, self.silence, self.start),
            listen=listen,
            secret=self.secret,
        )
        return {
            PLACE: place.text(),
            "RANK": str(index),
            "LOCAL_RANK": str(index - self.local.start),
            "WORLD_SIZE": str(self.world),
            "LOCAL_WORLD_SIZE": str(self.per_node),
            "MASTER_ADDR": self.host,
            "MASTER_PORT": str(self.port),
            "NEURON_RT_ROOT_COMM_ID": address,
            "NEURON_RANK_ID": str(self.node),
            # As AWS has it: the same host, another port.
            "CPU_COMM_ID": f"{self.host}:{self.port + 1}",
            # XLA's remarks on its own connections.
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }

    def listen_address(self) -> str:
        """The address of this machine that process 0 listens at.

        Empty for all: where the host is that of a gateway, or a name that only this machine knows
        as its loopback address, as some of them list their own name.
        """
        host = self.host.strip("[]")
        named = host != "localhost"
        with suppress(ValueError):
            ipaddress.ip_address(host.partition("%")[0])
            named = False
        with suppress(OSError, UnicodeError):
            for *_, place in socket.getaddrinfo(host, self.port, type=socket.SOCK_STREAM):
                found = str(place[0])
                loopback = ipaddress.ip_address(found.partition("%")[0]).is_loopback
                if _is_here(found) and not (named and loopback and self.nodes > 1):
                    return found
        return ""


def _is_here(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family) as trial:
            trial.bind((address, 0))
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class LaunchFlags:
    """Flags as given; ``None`` for what follows from variables."""

    nodes: int | None
    per_node: int | None
    node: int | None
    host: str | None
    port: int | None
    silence: float
    start: int
    secret_file: Path | None = None


def launch_plan(flags: LaunchFlags, env: Mapping[str, str]) -> LaunchPlan:
    """The plan of flags, of variables where a flag is missing, and of defaults (GG0705)."""
    per_node = flags.per_node or number_of(env, "LOCAL_WORLD_SIZE", 1)
    world = number_of(env, "WORLD_SIZE", per_node)
    nodes = flags.nodes or -(-world // per_node)
    if flags.nodes is None and nodes * per_node != world:
        raise GraphgenError(
            "GG0705",
            f"WORLD_SIZE={world} is not a multiple of {per_node} processes a node",
            help="give --nnodes and --nproc-per-node",
        )
    node = flags.node
    if node is None:
        node = number_of(env, "NEURON_RANK_ID", number_of(env, "RANK", 0) // per_node)
    if not 0 <= node < nodes:
        raise GraphgenError(
            "GG0705", f"node {node} of {nodes} does not exist", help=f"nodes are 0 to {nodes - 1}"
        )
    host, port = _address(flags, env, nodes)
    secret = _secret(flags.secret_file, env, nodes, f"{host}:{port}")
    return LaunchPlan(nodes, per_node, node, host, port, flags.silence, flags.start, secret)


def _secret(file: Path | None, env: Mapping[str, str], nodes: int, address: str) -> str:
    """The secret of a launch: of a file, of the variable, or made here (GG0705).

    That of one machine is random. Several machines make the same one where this user has the same
    key on all of them, as in a home folder that they share.
    """
    if file is not None:
        try:
            return _checked(read_regular(file, _MOST).decode(), str(file))
        except (OSError, ValueError) as error:
            raise unreadable(str(file), error, _MAKE) from error
    if SECRET in env:
        return _checked(env[SECRET], SECRET)
    if nodes == 1:
        return token_hex(32)
    made = signature("launch", address.encode())
    if not made:
        what = f"{nodes} nodes need a secret by which their processes know each other"
        raise GraphgenError("GG0705", what, help=_MAKE)
    return made.hex()


_MAKE = f"openssl rand -hex 32 > FILE, and --secret-file FILE or {SECRET} on every node"


def _checked(text: str, where: str) -> str:
    secret = text.strip()
    if len(secret) < _LEAST or not secret.isprintable():
        what = f"{where} has no secret of at least {_LEAST} printable characters"
        raise GraphgenError("GG0705", what, help=_MAKE)
    return secret


def _address(flags: LaunchFlags, env: Mapping[str, str], nodes: int) -> tuple[str, int]:
    """Host and port: flags, then torchrun's variables, then AWS's; any port on a single node."""
    root = env.get("NEURON_RT_ROOT_COMM_ID") or env.get("CPU_COMM_ID") or ""
    root_host, _, root_port = root.rpartition(":")
    host = flags.host or env.get("MASTER_ADDR") or root_host
    stated = {**env, "NEURON_RT_ROOT_COMM_ID": root_port}
    given = "MASTER_PORT" if env.get("MASTER_PORT") else "NEURON_RT_ROOT_COMM_ID"
    port = flags.port or number_of(stated, given, 0)
    if nodes > 1 and not (host and port):
        raise GraphgenError(
            "GG0705",
            f"{nodes} nodes need the address of node 0",
            help="give --master-addr and --master-port, or set MASTER_ADDR and MASTER_PORT, or "
            "NEURON_RT_ROOT_COMM_ID=HOST:PORT",
        )
    return host or "127.0.0.1", port or free_port()


def require_address(plan: LaunchPlan) -> None:
    """Refuse a host without an address, and on node 0 a port that is in use (GG0705)."""
    try:
        socket.getaddrinfo(plan.host.strip("[]"), plan.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise GraphgenError(
            "GG0705",
            f"the host of node 0, {plan.host}, has no address: {error}",
            help="correct --master-addr, or the variable that gives it",
        ) from error
    if plan.node == 0:
        with listening_at(plan.listen_address(), plan.port):
            pass


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def number_of(env: Mapping[str, str], name: str, default: int) -> int:
    """An integer of at least 0 from a variable; ``default`` where it is not set (GG0705)."""
    text = env.get(name, "")
    if not text:
        return default
    if not is_digits(text, RANKS.most):
        raise GraphgenError(
            "GG0705", f"{name}={text} is not a number", help=f"unset {name}, or correct it"
        )
    return int(text)


def stages_of_launch(given: int, env: Mapping[str, str]) -> int:
    """Stages of the pipeline: those of ``--pp-degree``, or of AWS's variable (GG0705).

    Args:
        given: the option; 1 where it is left out.
        env: variables of this process, ``NEURON_PP_STAGES`` among them.
    """
    stated = number_of(env, "NEURON_PP_STAGES", given) or 1
    if given not in (1, stated):
        raise GraphgenError(
            "GG0705",
            f"NEURON_PP_STAGES={stated}, but --pp-degree is {given}",
            help="unset it, or leave --pp-degree out",
        )
    return stated
