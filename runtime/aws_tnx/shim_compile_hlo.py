"""The compiler under the names of ``libneuronxla``: HLO is kept, and compiled where it is loaded.

Its users compile in processes of their own and send the result back as bytes, so the work that
needs this process's CPU devices is done by ``ParallelModel.load``.
"""

from __future__ import annotations

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.device_rows import UNSTATED_TARGET

# The first bytes of what stands for a NEFF here.
MAGIC = b"graphgen HLO for this CPU\n"


def neuron_xla_compile(
    module_bytes: bytes,
    compiler_flags: str | list[str] = "",
    input_format: str = "hlo",
    platform_target: str = UNSTATED_TARGET,
    **settings: object,
) -> bytes:
    """Keep an HLO module for :class:`ParallelModel`, whose ``load`` compiles it for this CPU.

    Args:
        module_bytes: the HloModuleProto.
        compiler_flags, platform_target, settings: of Neuron's compiler; without effect here.
        input_format: ``hlo`` (GG0904 for another).

    Raises:
        GraphgenError: GG0801 for anything but an HLO module.
    """
    from graphgen.lowering.hlo_proto.proto_module import looks_like_proto

    if input_format != "hlo":
        raise GraphgenError("GG0904", f"input_format '{input_format}' is not compiled here")
    if not looks_like_proto(module_bytes):
        raise GraphgenError("GG0801", "neuron_xla_compile is given no HLO module")
    return MAGIC + module_bytes


def hlo_in(neff: bytes) -> bytes:
    """The HLO module of what :func:`neuron_xla_compile` made (GG0801 for a real NEFF)."""
    if not neff.startswith(MAGIC):
        raise GraphgenError(
            "GG0801",
            "these bytes are not of graphgen's neuron_xla_compile",
            help="a NEFF runs on a Neuron device only; compile the model again here",
        )
    return neff[len(MAGIC) :]


class CacheUrl:
    """The place of Neuron's compile cache, which is not used here."""

    @staticmethod
    def get_cache_url(cache_dir: str | None = None) -> CacheUrl:
        """The one place there is."""
        return CacheUrl()


class CompileCache:
    """A cache without artifacts to download.

    Attributes:
        url: its place.
    """

    def __init__(self, url: CacheUrl) -> None:
        self.url = url


def create_compile_cache(url: CacheUrl) -> CompileCache:
    """The cache at a place."""
    return CompileCache(url)
