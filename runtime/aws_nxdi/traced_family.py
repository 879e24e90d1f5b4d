"""Families of models that users write in PyTorch: their programs are traced from their modules.

The body is what ``get_model_output`` of the class computes, the head what its ``lm_head`` does.
Both are exported by ``torch.export`` with rows and tokens left open, once for steps of several
tokens and once for steps of one, and become parts of the programs that graphgen's own families
have. Then norms, rope, activations and lookups are found in them, as in any imported program.
"""

from __future__ import annotations

import json
import sysconfig
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import DType, Module, Value
from graphgen.ir import dtype as dtype_named
from graphgen.ir.dtype import f32
from graphgen.lowering.aten.call import AtenCall, Rule
from graphgen.models.family import Family
from graphgen.models.program_form import FORM, ProgramForm
from graphgen.models.twins import TwinName
from graphgen.nn import StepInputs, attend, causal_mask

if TYPE_CHECKING:
    from torch import Tensor, nn

    from graphgen.eval import Array
    from graphgen.runtime.aws_config.inference_config import InferenceConfig

# Sizes that a module is traced with where they are left open: no size of a model is likely to be.
_ROWS, _TOKENS = 3, 5
# Tensors that programs for Neuron add to a state dictionary to know their rank.
_BUFFERS = ("*rank_util.rank",)
_PREFIX = "traced."


@dataclass(frozen=True, slots=True)
class TracedConfig:
    """The configuration of a model in PyTorch: its attributes as they are.

    Attributes:
        values: under Hugging Face's names.
    """

    values: Mapping[str, object]

    @property
    def vocab_size(self) -> int:
        """See :class:`~graphgen.models.family.ModelConfig` (GG0503 where it is not stated)."""
        found = self.values.get("vocab_size")
        if isinstance(found, int):
            return found
        raise GraphgenError("GG0503", "the configuration states no vocab_size", help="set it")

    @property
    def max_position_embeddings(self) -> int | None:
        """See :class:`~graphgen.models.family.ModelConfig`."""
        found = self.values.get("max_position_embeddings")
        return found if isinstance(found, int) else None

    @property
    def num_key_value_heads(self) -> int | None:
        """The number, where it is stated."""
        found = self.values.get("num_key_value_heads")
        return found if isinstance(found, int) else None

    def mini(self) -> TracedConfig:
        """Refuse a twin: only the class knows its sizes (GG0502)."""
        return self._no_twin()

    def wide(self) -> TracedConfig:
        """Refuse a twin: only the class knows its sizes (GG0502)."""
        return self._no_twin()

    def _no_twin(self) -> NoReturn:
        raise GraphgenError(
            "GG0502",
            "a model in PyTorch has no smaller twin",
            help="make one by smaller sizes in its configuration",
        )

    def to_hf(self) -> dict[str, object]:
        """The attributes."""
        return dict(self.values)


@dataclass(frozen=True, slots=True)
class TracedFamily(Family[TracedConfig]):
    """The family of one class of models in PyTorch.

    Attributes:
        cls: the class.
        configs: what its modules are made of, by the attributes of the model.
        held: values of buffers that programs read, by name, for checkpoints without them.
        traces: the traced functions of the model that was built last.
    """

    cls: Any = None
    configs: dict[str, InferenceConfig] = field(default_factory=dict[str, "InferenceConfig"])
    held: dict[str, Array] = field(default_factory=dict[str, "Array"])
    traces: dict[tuple[object, ...], Any] = field(default_factory=dict[tuple[object, ...], Any])

    def remember(self, model: Mapping[str, object], config: InferenceConfig) -> None:
        """Note the configuration of a model, which its module is made of."""
        self.configs[_key(model)] = config

    def made(self, model: Mapping[str, object], dtype: DType) -> nn.Module:
        """A module of the class with parameters of ``dtype``, in evaluation mode.

        Raises:
            GraphgenError: GG0904 for a model whose configuration this process does not have, or a
                class whose ``forward`` is its own, GG0502 with the line where the class fails.
        """
        import torch

        from graphgen.runtime.aws_nxdi.torch_layers import element_type, place_caches

        config = self.configs.get(_key(model))
        if config is None:
            raise GraphgenError(
                "GG0904",
                f"{self.cls.__name__} is traced by its application, and this is another model",
                help="open the folder or the checkpoint by the class of its application",
            )
        try:
            with torch.no_grad():
                module = cast("nn.Module", self.cls(config))
        except GraphgenError:
            raise
        except Exception as error:
            raise refusal(error, f"{self.cls.__name__}(config)") from error
        wanted = element_type(_TORCH_NAMES.get(dtype.name, dtype.name))
        for parameter in module.parameters():
            if parameter.is_floating_point():
                parameter.data = parameter.data.to(wanted)
        place_caches(module)
        return module.eval()

    def traced(
        self,
        what: tuple[object, ...],
        config: TracedConfig,
        dtype: DType,
        compute: Any,
        args: Sequence[Any],
    ) -> Any:
        """The exported program of a part of the model, made once while the model is the same.

        Args:
            what: the part.
            config: of the model.
            dtype: of its parameters.
            compute: gives the part from the module and ``args``.
            args: tensors, whose first size is that of rows and whose second is that of tokens.
        """
        model = (_key(config.values), dtype)
        if any(key[0] != model for key in self.traces):
            self.traces.clear()
        key = (model, *what, *(tuple(item.shape) for item in args))
        if key not in self.traces:
            module = self.made(config.values, dtype)
            self.traces[key] = _exported(self.cls.__name__, module, compute, args)
        return self.traces[key]

    def rules(self, model: Mapping[str, object]) -> tuple[str, ...]:
        """Rules that state the layouts of the parallel layers of a model; see ``shard``."""
        import torch

        from graphgen.runtime.aws_nxdi.torch_layers import layout_rules

        with torch.device("meta"):
            return tuple(layout_rules(self.made(model, f32)))

    def module(
        self,
        config: Mapping[str, object],
        dtype: DType,
        phases: tuple[str, ...],
        *,
        twin: TwinName | None = None,
        form: ProgramForm = FORM,
    ) -> Module:
        """The logical module, with the composites that are found in the traced programs."""
        # Only here: other families need no raising.
        from graphgen.passes.core import run_pipeline
        from graphgen.passes.pipelines import parse

        made = Family[TracedConfig].module(self, config, dtype, phases, twin=twin, form=form)
        run_pipeline(made, parse("imported"))
        return made


_TORCH_NAMES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}


def _key(model: Mapping[str, object]) -> str:
    return json.dumps({**model, "quantization_config": None}, sort_keys=True, default=str)


def traced_family(cls: type) -> TracedFamily:
    """The family of a class of models in PyTorch, which the process does not know yet."""
    family: TracedFamily

    def read(config: Mapping[str, object]) -> TracedConfig:
        return TracedConfig(dict(config))

    def body(
        b: Builder, config: TracedConfig, tokens: Value, step: StepInputs, dtype: DType
    ) -> Value:
        return _traced_body(b, family, config, tokens, step)

    def head(b: Builder, config: TracedConfig, x: Value) -> Value:
        return _traced_head(b, family, config, x)

    family = TracedFamily(
        f"torch-{cls.__name__}",
        (cls.__name__,),
        read,
        body,
        head,
        prefix="",
        embedding="embed_tokens.weight",
        buffers=_BUFFERS,
        cls=cls,
    )
    return family


def _traced_body(
    b: Builder, family: TracedFamily, config: TracedConfig, tokens: Value, step: StepInputs
) -> Value:
    """Hidden states [B,S,E] after the last norm."""
    import torch

    embeds, count = len(tokens.shape) == 3, _count(tokens.shape[1])
    positions = torch.arange(count, dtype=torch.int32)[None].expand(_ROWS, -1).contiguous()
    shape = cast("tuple[int, ...]", (_ROWS, count, *tokens.shape[2:]))
    first = torch.zeros(shape, dtype=torch.float32 if embeds else torch.int32)

    def compute(module: Any, input_ids: Tensor, position_ids: Tensor) -> object:
        given = {"inputs_embeds": input_ids} if embeds else {"input_ids": input_ids}
        made: Any = module.get_model_output(position_ids=position_ids, **given)
        return cast(Any, made)[0] if isinstance(made, tuple | list) else made

    dtype = step_dtype(b)
    exported = family.traced(("body", embeds), config, dtype, compute, (first, positions))
    inputs = (tokens, step.positions)
    return _inlined(b, family, exported, inputs, {_attention_name(): _attention_rule(step)})


def _traced_head(b: Builder, family: TracedFamily, config: TracedConfig, x: Value) -> Value:
    """Logits f32 [...,V] of hidden states [...,E]."""
    import torch

    from graphgen.runtime.aws_nxdi.torch_layers import element_type

    rows = len(x.shape) == 2
    count, width = 1 if rows else _count(x.shape[1]), cast(int, x.shape[-1])
    dtype = element_type(_TORCH_NAMES.get(x.dtype.name, x.dtype.name))

    def compute(module: Any, hidden_states: Tensor) -> object:
        return module.lm_head(hidden_states)

    hidden = torch.zeros((_ROWS, count, width), dtype=dtype)
    exported = family.traced(("head",), config, step_dtype(b), compute, (hidden,))
    given = b.reshape(x, (x.shape[0], 1, width)) if rows else x
    logits = b.convert(_inlined(b, family, exported, (given,), {}), f32)
    return b.reshape(logits, (x.shape[0], logits.shape[-1])) if rows else logits


def step_dtype(b: Builder) -> DType:
    """The element type that the module of a program states for its weights."""
    assert b.module is not None
    return dtype_named(b.module.meta["dtype"])


def _count(size: object) -> int:
    """Tokens that a step is traced with: one, or a number that stands for any other."""
    return 1 if isinstance(size, int) and size == 1 else _TOKENS


def _attention_name() -> str:
    from graphgen.runtime.aws_nxdi.torch_layers import CACHED_ATTENTION

    return CACHED_ATTENTION


def _attention_rule(step: StepInputs) -> Rule:
    """The rule of an attention over its cache, in a program with these inputs."""

    def attention(c: AtenCall) -> Value:
        q, k, v = (c.value(name) for name in ("query", "key", "value"))
        path, before = c.word("layer"), c.b.loc
        mask = causal_mask(c.b, step, c.integer("window"))
        sinks = c.maybe("sinks")
        terms = [] if sinks is None else [c.b.convert(sinks, f32)]
        with c.b.scope(path):
            c.b.loc = before
            scale, softcap = c.number("scale"), c.number("softcap")
            return attend(c.b, q, k, v, step, mask, scale, *terms, softcap=softcap)

    return attention


def _inlined(
    b: Builder,
    family: TracedFamily,
    exported: Any,
    inputs: Sequence[Value],
    rules: Mapping[str, Rule],
) -> Value:
    """The result of a traced function as a part of a program."""
    from graphgen.lowering.aten.program import Inlining, inline_exported

    name = family.cls.__name__
    library = str(Path(__file__).parent)
    given = {f"args_{number}": value for number, value in enumerate(inputs)}
    into = Inlining(b, given, _PREFIX, library, rules)
    results, weights = inline_exported(exported, name, into)
    buffers = {key.removeprefix(_PREFIX) for key in exported.graph_signature.buffers}
    family.held.update({key: array for key, array in weights.items() if key in buffers})
    if len(results) != 1:
        raise GraphgenError(
            "GG0502",
            f"{name} gives {len(results)} tensors in the place of one",
            help="get_model_output gives (hidden_states, ...), lm_head logits",
        )
    return results[0]


def _exported(name: str, module: nn.Module, compute: Any, args: Sequence[Any]) -> Any:
    """``compute(module, *args)`` as an exported program of core ATen, whose rows are left open.

    The tokens of steps with several are left open, too.
    """
    import torch

    from graphgen.lowering.aten.export_model import export
    from graphgen.lowering.aten.program import decomposed

    class Traced(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.traced = module

        def forward(self, *args: Tensor) -> object:
            return compute(self.traced, *args)

    keep_lines_of(module)
    rows, tokens = torch.export.Dim("B", max=1 << 20), torch.export.Dim("S", min=2, max=1 << 20)
    sizes = {0: rows, 1: tokens} if args[0].shape[1] > 1 else {0: rows}
    try:
        made = export(Traced(), tuple(args), None, {"args": tuple([sizes] * len(args))})
    except GraphgenError:
        raise
    except Exception as error:
        raise refusal(error, name) from error
    return decomposed(made, name)


def keep_lines_of(model: nn.Module) -> None:
    """Let torch note lines in all methods of a model's classes; by default ``forward`` alone."""
    import torch
    from torch.fx import proxy

    register: Any = getattr(proxy, "_register_stack_trace_anchor", None)
    if register is None:
        return
    library = Path(str(torch.__file__)).parent
    for kind in dict.fromkeys(base for part in model.modules() for base in type(part).__mro__):
        for method in vars(kind).values():
            code: Any = getattr(method, "__code__", None)
            if code is not None and library not in Path(code.co_filename).parents:
                register(method)


def refusal(error: Exception, what: str) -> GraphgenError:
    """The refusal of a module that fails, or that torch cannot trace, with the line at fault.

    Without one where no line of the model fails: a call of it does.
    """
    import torch

    import graphgen

    homes = {Path(str(each.__file__)).parent for each in (torch, graphgen)}
    libraries = {Path(sysconfig.get_path(each)) for each in ("stdlib", "purelib", "platlib")}
    # Code that was made from a string has no line to show.
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")
    ]
    outside = [frame for frame in frames if homes.isdisjoint(Path(frame.filename).parents)]
    own = [frame for frame in outside if libraries.isdisjoint(Path(frame.filename).parents)]
    # A model may be an installed package.
    last = next(reversed(own or [f for f in outside if "site-packages" in f.filename]), None)
    reason = (str(error).strip().splitlines() or [""])[0]
    return GraphgenError(
        "GG0502",
        f"{what} cannot be traced: {type(error).__name__}: {reason}",
        where=f"{Path(last.filename).name}:{last.lineno}" if last else "",
        note=((last.line if last else "") or "").strip(),
        help="a module is traced with torch.export: shapes may differ from call to call, values "
        "of tensors may not decide what is computed; masks and caches are those of "
        "NeuronAttentionBase",
    )
