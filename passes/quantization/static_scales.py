"""Static activation scales, from a calibration file or from a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import DType, Function, Module, Value
from graphgen.ir.dtype import f8e4m3, f8e4m3fn, f32
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.quantization.cache_form import clamped, limit_of, scale_of
from graphgen.passes.quantization.cache_ranges import read_input_ranges
from graphgen.passes.quantization.product_weight import chosen_matrices
from graphgen.passes.quantization.rescale_f8 import FACTOR
from graphgen.passes.weights.derived import PreparedValues

# Beside ``X.weight``: what the inputs of X are about multiples of, one number.
INPUT_SCALE: Final = "input_scale"
# Neuron's f8e4m3 ends there.
_NEURON = 240.0


class StaticScales:
    """The scales of the left operands of a program's products, by what their weights are made of.

    Of a weight that is several side by side, such as the fused q, k and v, the largest scale is
    taken: they have one input.

    Args:
        module: its rows say which scales the checkpoint holds.
        function: the program.
        ranges: the file of largest magnitudes; empty for the checkpoint's scales.
        rescaled: f8e4m3fn numbers of weights were made 240 at most, for Neuron: those of
            activations become so too.

    Raises:
        GraphgenError: GG0705 for a file without ranges.
    """

    def __init__(self, module: Module, function: Function, ranges: str, *, rescaled: bool) -> None:
        self._module, self._function, self._rescaled = module, function, rescaled
        self._prepared = PreparedValues(module, function, {})
        self._file, self._asked, self._found = ranges, list[str](), False
        self._ranges: Mapping[str, float] | None = None
        if ranges:
            self._ranges = read_input_ranges(Path(ranges))

    def quantize(self, b: Builder, x: Value, weight: Value) -> tuple[Value, Value] | NoMatch:
        """The numbers of ``x``, and their scale, f32 [].

        Args:
            b: builds before the product.
            x: the left operand.
            weight: the narrow numbers that it is multiplied by; theirs is the type.
        """
        # Of chosen experts the whole stack: what they are chosen by is made of other weights.
        stored = chosen_matrices(weight, self._prepared)
        if not self._prepared.of_weights(stored):
            return no_match("its right operand is not made of weights alone", weight, depth=4)
        names = self._prepared.sources(stored)
        self._asked += names
        found = self._of_checkpoint if self._ranges is None else self._of_file
        made = found(b, names, weight)
        if isinstance(made, NoMatch):
            return made
        scale, limit = made
        self._found = True
        steps = b.convert(x, f32) / b.broadcast_in_dim(scale, x.shape, [])
        return clamped(b, steps, weight.dtype, limit), scale

    def require_some(self) -> None:
        """Refuse a program of whose products none has a scale (GG0304)."""
        if self._found or not self._asked:
            return
        none = f"{self._file} has ranges" if self._file else "the checkpoint has scales"
        raise GraphgenError(
            "GG0304",
            f"quantize-activations: {none} of no input: not of that of {self._asked[0]}",
            help="graphgen calibrate MODEL --text TEXT -o FILE writes ranges for "
            "--activation-ranges; or --activation-quantization-type dynamic gives each row a scale",
        )

    def _of_file(
        self, b: Builder, names: Sequence[str], weight: Value
    ) -> tuple[Value, float] | NoMatch:
        assert self._ranges is not None
        known = [self._ranges[name] for name in names if name in self._ranges]
        if not known:
            return no_match(f"the file has no range for {_named(names)}", weight, depth=5)
        limit = _limit(weight.dtype)
        return b.literal(scale_of(max(known), limit), f32), limit

    def _of_checkpoint(
        self, b: Builder, names: Sequence[str], weight: Value
    ) -> tuple[Value, float] | NoMatch:
        rows = [f"{name.removesuffix('.weight')}.{INPUT_SCALE}" for name in names]
        rows = [row for row in rows if row in self._module.interface]
        if not rows:
            return no_match(f"the checkpoint has no scale for {_named(names)}", weight, depth=5)
        scale = b.reshape(b.convert(self._argument(rows[0]), f32), ())
        for row in rows[1:]:
            scale = b.binary("maximum", scale, b.reshape(b.convert(self._argument(row), f32), ()))
        if weight.dtype in (f8e4m3, f8e4m3fn) and self._rescaled:
            return scale * FACTOR, _NEURON
        return scale, limit_of(weight.dtype)

    def _argument(self, name: str) -> Value:
        """The scale as the program takes it, which until now it may not have read."""
        found = self._function.arg(name)
        if found is None:
            found = self._function.block.add_arg(self._module.interface[name].physical, name)
        return found


def _limit(element: DType) -> float:
    """The number that the largest magnitude becomes; Neuron's f8e4m3 ends at 240."""
    return _NEURON if element is f8e4m3fn else limit_of(element)


def _named(names: Sequence[str]) -> str:
    return " and ".join(names) or "this weight"
