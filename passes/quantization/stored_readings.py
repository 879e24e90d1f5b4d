"""A quantized checkpoint's forms as its configuration states them, and modules that read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import ClassVar, Final, cast

from graphgen.build import Builder
from graphgen.config.fields import option, words
from graphgen.config.option_words import ACTIVATIONS_WIDE
from graphgen.errors import GraphgenError
from graphgen.ir import Entry, Function, Module, Op, Role, Value, dtype, entry, tensor
from graphgen.ir.dtype import DTYPES, f32
from graphgen.passes.core import Pass, Rewriter
from graphgen.passes.core.relation import EQUAL
from graphgen.passes.quantization.compressed_formats import StoredQuantization
from graphgen.passes.quantization.read_config import stored_quantizations
from graphgen.passes.quantization.scale_products import scale_product
from graphgen.passes.quantization.scheme_table import SCHEMES
from graphgen.passes.quantization.static_scales import INPUT_SCALE
from graphgen.passes.quantization.stored_scheme import StoredForm, StoredScheme
from graphgen.passes.quantization.unlisted_modules import MODULES, SKIPPED, unlisted_modules
from graphgen.targets import find_target


@dataclass(frozen=True)
class ReadQuantized(Pass):
    """Read the weights of a module from a quantized checkpoint.

    A weight ``X.weight`` becomes the tensors of the scheme, such as ``X.qweight`` and
    ``X.scales``, and what they mean is IR: words are unpacked and scales turned by the weight
    program, once. Numbers with one scale a row, or a tensor, are multiplied as they are and the
    product is scaled; those with a scale a group of columns are widened where they are read
    (``dequantize``), as those of GPT-OSS's experts are. No weight is held as floats. The module
    means what the checkpoint's dequantized weights mean.

    The runtime runs it on a model that was just built, with what the checkpoint states; it is in no
    registry, because it has nothing to do without a checkpoint's names.

    Options:
        scheme: names and meaning of the tensors.
        element: type of the numbers.
        block: rows and columns of a weight that share a scale; 0 for all of them.
        zero_points: the numbers have a zero point a block.
        ordered: columns belong to groups by a table (GPTQ's desc_act); these weights are widened
            once, when they are read.
        rescaled: numbers in f8e4m3fn are divided by 448 / 240 when they are read, and the scales
            multiplied by it: Neuron's f8e4m3 ends at 240. Those in f4e2m1fn become f8e5m2.
        static: ``X.input_scale`` are rows of the interface too, for ``quantize-activations``.
        scales: type of the scales, as they are stored.
        modules: patterns of ``X``; nothing else is quantized.
        skip: names of ``X`` that a pattern matches and that are not quantized.

    Given:
        module @m level=logical {
          input %x : bf16[2,8]
          weight %up.weight : bf16[6,8]
          weight %down.weight : bf16[8,6]
          output %y : bf16[2,6]
        }

        func @f phase=decode {
          arg %x : bf16[2,8]
          arg %up.weight : bf16[6,8]
          %y = dot_general(%x, %up.weight) lhs_contracting_dims=[1] rhs_contracting_dims=[1] \
dtype=bf16 : bf16[2,6]
          return y = %y
        }

    Result (``read-quantized{block=[1,4],modules=[up]}``):
        module @m level=logical {
          input %x : bf16[2,8]
          weight %up.weight : s8[6,8]
          weight %up.weight_scale : f32[6,2]
          weight %down.weight : bf16[8,6]
          output %y : bf16[2,6]
        }

        func @f phase=decode {
          arg %x : bf16[2,8]
          arg %up.weight : s8[6,8]
          arg %up.weight_scale : f32[6,2]
          %0 = dequantize(%up.weight, %up.weight_scale) block=[1,4] dtype=bf16 : bf16[6,8]
          %y = dot_general(%x, %0) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=bf16 : \
bf16[2,6]
          return y = %y
        }
    """

    name: ClassVar[str] = "read-quantized"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    requires: ClassVar[tuple[str, ...]] = ("raw-weights",)
    scheme: str = option(words(*SCHEMES), "compressed-tensors")
    element: str = option(words(*DTYPES), "s8")
    block: tuple[int, ...] = (1, 0)
    zero_points: bool = False
    ordered: bool = False
    rescaled: bool = False
    static: bool = False
    scales: str = option(words("f32", "bf16", "f16"), "f32")
    modules: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Replace the weights, then scale products where one scale belongs to a row."""
        if len(self.block) != 2 or min(self.block) < 0:
            what = f"read-quantized: block={list(self.block)} is not two sizes"
            raise GraphgenError("GG0302", what)
        scheme = SCHEMES[self.scheme]
        form = StoredForm(
            dtype(self.element),
            (self.block[0], self.block[1]),
            self.zero_points,
            self.ordered,
            self.rescaled,
            self.static,
            dtype(self.scales),
        )
        rows = [row for row in module.entries(Role.WEIGHT) if self._quantized(row, scheme)]
        if not rows or rewriter.exhausted:
            return
        for function in module.programs():
            readers = {v: op for op in reversed(function.block) for v in op.operands}
            for row in rows:
                _read(function, row, scheme, form, rewriter, readers)
            rewriter.apply_rules(function, (scale_product,))
            function.erase_unread("dequantize")
        names = {row.name for row in rows}
        old = dict(module.interface)
        module.interface.clear()
        for name, row in old.items():
            made = _entries(row, scheme, form) if name in names else [row]
            module.interface.update({item.name: item for item in made})

    def _quantized(self, row: Entry, scheme: StoredScheme) -> bool:
        base = row.name.removesuffix(".weight")
        return (
            row.name.endswith(".weight")
            and row.logical.rank in scheme.ranks
            and base not in self.skip
            and any(fnmatchcase(base, pattern) for pattern in self.modules)
        )


def _entries(row: Entry, scheme: StoredScheme, form: StoredForm) -> list[Entry]:
    base = row.name.removesuffix(".weight")
    parts = dict(scheme.parts(form, row.logical.dims))
    if form.static:
        parts[INPUT_SCALE] = tensor(f32, (1,))
    return [entry(Role.WEIGHT, scheme.tensor(base, last), type_) for last, type_ in parts.items()]


def _read(
    function: Function,
    row: Entry,
    scheme: StoredScheme,
    form: StoredForm,
    rewriter: Rewriter,
    readers: Mapping[Value, Op],
) -> None:
    """Let one program read the tensors of the scheme in the place of a weight.

    They are widened right before the first of ``readers``: earlier, wide weights of all layers
    would be there at once.
    """
    weight = function.arg(row.name)
    if weight is None:
        return
    function.block.keep_args([value for value in function.args if value is not weight])
    base = row.name.removesuffix(".weight")
    parts = {
        last: function.block.add_arg(type_, scheme.tensor(base, last))
        for last, type_ in scheme.parts(form, row.logical.dims).items()
    }
    user = readers.get(weight)
    first = user or function.block.first
    b = Builder(function, before=first, loc=user.loc.through(rewriter.pass_name) if user else None)
    b.made = list[Op]()
    wide = scheme.widen(b, form, parts, row.logical.dims, row.logical.dtype)
    rewriter.note(function, f"read {row.name}", first, b.made, ((weight, wide, EQUAL),))
    function.replace_uses(weight, wide)


# Key of a quantization_config beside those of modules: the type of scales.
SCALES: Final = "type_of_scales"


@dataclass(frozen=True, slots=True)
class StoredReading:
    """One form of a checkpoint's weights, and where it is.

    Attributes:
        found: scheme and numbers.
        modules: patterns of the modules whose weight is stored so.
        skip: modules that a pattern matches and whose weight is not.
    """

    found: StoredQuantization
    modules: tuple[str, ...]
    skip: tuple[str, ...]


def stored_readings(
    config: Mapping[str, object], module: Module | None = None
) -> list[StoredReading]:
    """Each form that a checkpoint's weights are in.

    Args:
        config: of a checkpoint, as ``with_quantization`` or a view of GGUF gives it; without the
            modules that they state, those that the scheme always has.
        module: built from ``config``; its linear layers are taken where no modules are stated.

    Raises:
        GraphgenError: GG0502 for a scheme that is not read.
    """
    stated = config.get("quantization_config")
    found = stored_quantizations(config)
    if not found or not isinstance(stated, dict):
        return []
    own = cast("Mapping[str, Mapping[str, object]]", stated)
    kinds = own.get("kinds", {})
    readings: list[StoredReading] = []
    if SCALES in own:
        scale = dtype(str(own[SCALES]))
        found = [replace(each, form=replace(each.form, scale=scale)) for each in found]
    for each in found:
        names = cast("Mapping[str, Sequence[str]]", kinds.get(each.scheme.name, own))
        if MODULES not in names and module is not None:
            names = unlisted_modules(module, config, each.scheme.modules)
        modules, skip = names.get(MODULES, each.scheme.modules), names.get(SKIPPED, ())
        if modules:
            readings.append(StoredReading(each, tuple(modules), tuple(skip)))
    return readings


def read_quantized(
    module: Module,
    config: Mapping[str, object],
    target: str = "cpu",
    activations: str = ACTIVATIONS_WIDE,
) -> str:
    """Let a logical module read the weights of a quantized checkpoint.

    Args:
        module: built from ``config``; changed in place.
        config: of a checkpoint, as ``with_quantization`` gives it, or a ``config.json`` alone.
        target: of the compilation; on Neuron's devices f8e4m3 ends at 240, and not at 448.
        activations: their type in the compilation, ``activation_quantization_type``.

    Returns:
        A remark for the user on what is computed otherwise than by the checkpoint's own library;
        empty for none.

    Raises:
        GraphgenError: GG0502 for a scheme that is not read.
    """
    readings = stored_readings(config, module)
    if not readings:
        return ""
    # Only here: an artifact runs without any pass.
    from graphgen.passes.core import run_pipeline

    for each in readings:
        form = each.found.form
        reading = ReadQuantized(
            scheme=each.found.scheme.name,
            element=form.element.name,
            block=form.block,
            zero_points=form.zero_points,
            ordered=form.ordered,
            rescaled=find_target(target).is_accelerator,
            static=form.static,
            scales=form.scale.name,
            modules=each.modules,
            skip=each.skip,
        )
        run_pipeline(module, [reading])
    found = readings[0].found
    if not found.activations or activations != ACTIVATIONS_WIDE:
        return ""
    return (
        f"the checkpoint is made for activations in {found.activations}; they stay in "
        f"{module.meta['dtype']} here, which rounds less"
    )
