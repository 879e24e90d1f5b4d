"""Weight quantization schemes under AWS's names: element type and granularity of the scales."""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.errors import GraphgenError
from graphgen.ir import DType
from graphgen.ir.dtype import f4e2m1fn, f8e4m3fn, f8e5m2, s4, s8
from graphgen.numbers import is_digits

PER_TENSOR, PER_CHANNEL = "per_tensor_symmetric", "per_channel_symmetric"
BLOCKWISE, GROUP = "blockwise", "group"
SCHEMES = (PER_TENSOR, PER_CHANNEL)
DTYPES = ("int8", "f8e4m3", "f8e5m2")
# Types that quantize-weights produces while a checkpoint is loaded.
LOADED_DTYPES = (*DTYPES, "int4")
LOADED_SCHEMES = (*SCHEMES, GROUP)
# Of checkpoints that are written.
WRITTEN_DTYPES = (*DTYPES, "int4", "mxfp4")
WRITTEN_SCHEMES = (*SCHEMES, BLOCKWISE, GROUP)

# Neuron's f8e4m3 ends at 240; stored as OCP's type, which ends at 448, its values are the same.
ELEMENTS: dict[str, DType] = {
    "int8": s8,
    "f8e4m3": f8e4m3fn,
    "f8e5m2": f8e5m2,
    "int4": s4,
    "mxfp4": f4e2m1fn,
}
# DeepSeek's blocks of 8-bit floats, and the groups of OCP's microscaling formats.
_TILE, _MX_GROUP, _INT4_GROUP = 128, 32, 64


def limit(dtype: str, scheme: str) -> float:
    """The value that the largest weight of a tensor or channel becomes: scale = absmax / limit.

    NxD Inference's numbers. For int8 tensors it takes torch's steps of (127 - -128) / 2, in which
    the largest weight may be brought to 127; for channels 127, in which nothing is brought to.
    int4 has the steps of compressed-tensors, (7 - -8) / 2.
    """
    if dtype == "int8":
        return 127.5 if scheme == PER_TENSOR else 127.0
    return {"f8e4m3": 240.0, "f8e5m2": 57344.0, "int4": 7.5}[dtype]


@dataclass(frozen=True, slots=True)
class WeightScheme:
    """An element type and the part of a weight [N,K] that shares a scale.

    Attributes:
        dtype: one of :data:`WRITTEN_DTYPES`.
        scheme: one of :data:`WRITTEN_SCHEMES`.
        group_size: consecutive inputs that share a scale; 0 without groups.
    """

    dtype: str
    scheme: str
    group_size: int = 0

    def block(self, shape: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns that share a scale; the last blocks may be short."""
        rows, columns = shape
        return {
            PER_TENSOR: (rows, columns),
            PER_CHANNEL: (1, columns),
            BLOCKWISE: (_TILE, _TILE),
            GROUP: (1, self.group_size),
        }[self.scheme]

    @property
    def bits(self) -> int:
        """Bits of an element."""
        return ELEMENTS[self.dtype].bits

    @property
    def text(self) -> str:
        """``int4:group:64``, as :func:`weight_scheme` reads it."""
        size = f":{self.group_size}" if self.group_size else ""
        return f"{self.dtype}:{self.scheme}{size}"


def weight_scheme(dtype: str, scheme: str | None = None, group_size: int = 0) -> WeightScheme:
    """The scheme of these options.

    Args:
        dtype: of the elements.
        scheme: what shares a scale; ``None`` for groups of 4-bit numbers, otherwise channels.
        group_size: of groups; 0 for 64, and for 32 where the format says so.

    Raises:
        GraphgenError: GG0705 for an unknown name, and for a combination that no format has.
    """
    wide = dtype in DTYPES
    chosen = scheme or (PER_CHANNEL if wide else GROUP)
    for what, value, known in (
        ("dtype", dtype, WRITTEN_DTYPES),
        ("type", chosen, WRITTEN_SCHEMES),
    ):
        if value not in known:
            raise GraphgenError(
                "GG0705",
                f"quantization {what} {value} is unknown",
                help=f"one of {', '.join(known)}",
            )
    if chosen != GROUP and group_size:
        raise _refused(f"a group size has no effect on {chosen}", "leave it out, or use group")
    if (chosen == GROUP) == wide:
        raise _refused(f"{dtype} has no scheme {chosen}", _FITTING[wide])
    if dtype == "mxfp4" and group_size not in (0, _MX_GROUP):
        raise _refused(f"mxfp4 has groups of {_MX_GROUP}, not {group_size}", "leave the size out")
    if chosen != GROUP:
        return WeightScheme(dtype, chosen)
    return WeightScheme(dtype, GROUP, group_size or _default_group(dtype))


def loaded_scheme(dtype: str, scheme: str | None = None, group_size: int = 0) -> WeightScheme:
    """The scheme of these options, if weights can be quantized by it while they are loaded.

    Raises:
        GraphgenError: GG0705 for one that :func:`weight_scheme` refuses, and for one that only a
            checkpoint is written in.
    """
    made = weight_scheme(dtype, scheme, group_size)
    if made.dtype not in LOADED_DTYPES or made.scheme not in LOADED_SCHEMES:
        raise _refused(
            f"weights are not quantized to {made.text} while they are loaded",
            "write a checkpoint with graphgen quantize, and open that",
        )
    return made


def _default_group(dtype: str) -> int:
    return _MX_GROUP if dtype == "mxfp4" else _INT4_GROUP


_FITTING = {
    True: "8-bit elements have a scale a tensor, a channel or a block; int4 and mxfp4 have groups",
    False: "4-bit elements come in groups: the type is group",
}


def _refused(what: str, help: str) -> GraphgenError:
    return GraphgenError("GG0705", what, help=help)


def scheme_of_text(text: str) -> WeightScheme:
    """The scheme of ``int8``, ``int8:per_tensor_symmetric`` or ``int4:group:32`` (GG0705)."""
    dtype, *rest = text.split(":")
    if len(rest) > 2 or (len(rest) == 2 and not (is_digits(rest[1]) and int(rest[1]) > 0)):
        raise _refused(f"'{text}' names no scheme", "write DTYPE, DTYPE:TYPE or DTYPE:TYPE:SIZE")
    return weight_scheme(dtype, rest[0] if rest else None, int(rest[1]) if len(rest) == 2 else 0)
