"""The model of an application, and the programs that an application compiles of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.exec.decode_steps import STEPS
from graphgen.ir import VERIFY, VERIFY_TREE
from graphgen.lowering.abi import clean_name
from graphgen.models import register_family
from graphgen.models.family import Family
from graphgen.models.registry import forget_family
from graphgen.runtime.aws_config.draft_checks import is_fused
from graphgen.runtime.aws_config.inference_config import InferenceConfig
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_nxdi.user_arrays import UserArray, as_user_array

if TYPE_CHECKING:
    from graphgen.runtime.aws_nxdi.traced_family import TracedFamily

CONTEXT_ENCODING = "context_encoding_model"
TOKEN_GENERATION = "token_generation_model"
SPECULATION = "speculation_model"
FUSED_SPECULATION = "fused_speculation_model"
MEDUSA = "medusa_speculation_model"
# Phase of graphgen's programs, by AWS's tag.
PHASES: Mapping[str, str] = {
    CONTEXT_ENCODING: "prefill",
    TOKEN_GENERATION: "decode",
    SPECULATION: VERIFY,
    FUSED_SPECULATION: STEPS,
    MEDUSA: VERIFY_TREE,
}


def tags_of(config: NeuronConfig) -> tuple[str, ...]:
    """The tags that have programs: one more with each of the attributes of speculation."""
    made = [CONTEXT_ENCODING, TOKEN_GENERATION]
    if config.value("speculation_length"):
        made.append(FUSED_SPECULATION if is_fused(config) else SPECULATION)
    if config.value("is_medusa"):
        made.append(MEDUSA)
    return tuple(made)


class _ModelClass(type):
    """The class of models: those that describe themselves in PyTorch are modules of it."""

    def __new__(mcs, name: str, bases: tuple[type, ...], space: dict[str, object]) -> _ModelClass:
        """Make a class; with ``init_model`` one that extends ``torch.nn.Module``, too."""
        describes = "init_model" in space or any(hasattr(base, "init_model") for base in bases)
        if describes:
            # Only here: families describe their models without torch.
            from torch import nn

            if not any(issubclass(base, nn.Module) for base in bases):
                bases = (*bases, nn.Module)
        return super().__new__(mcs, name, bases, space)


class NeuronBaseModel(metaclass=_ModelClass):
    """A model: a family that describes its computation, or modules of PyTorch.

    A subclass sets :attr:`family`, or defines ``setup_attr_for_model`` and ``init_model``, which
    sets ``embed_tokens``, ``layers``, ``norm`` and ``lm_head``: it is a ``torch.nn.Module`` then,
    and traced. Its class is the ``_model_cls`` of an application.

    Args:
        config: of the model, for one in PyTorch.
        optimize_inference: no effect: caches and on-device sampling are parts of the programs.

    Attributes:
        family: the model's family.
        sampler, kv_mgr: ``None``: the programs sample, and have the caches.
        sequence_dimension: ``None``: ranks divide tokens as the configuration says.
    """

    family: ClassVar[Family[Any]]
    sampler: None = None
    kv_mgr: None = None
    sequence_dimension: int | None = None

    def __init__(self, config: object = None, optimize_inference: bool = True) -> None:
        described = cast(Any, self)
        if not is_traced(type(self)):
            raise GraphgenError(
                "GG0904",
                f"{type(self).__name__} names a model's family, and its objects do not compute",
                help="give the class to an application: _model_cls; NeuronLlamaForCausalLM("
                "MODEL_PATH, config).to_cpu() runs a model",
            )
        super().__init__()
        described.config = config
        described.neuron_config = getattr(config, "neuron_config", None)
        if hasattr(self, "setup_attr_for_model"):
            described.setup_attr_for_model(config)
        described.init_model(config)

    @classmethod
    def registered_family(cls) -> Family[Any]:
        """The family, known to the process from now on.

        Raises:
            GraphgenError: GG0904 for a class that describes no model, and for one in PyTorch with
                a ``forward`` of its own, GG0501 for a model type that belongs to another family.
        """
        if is_traced(cls):
            return _registered_class(cls)
        family = getattr(cls, "family", None)
        if family is None:
            raise GraphgenError(
                "GG0904",
                f"{cls.__name__} describes no model",
                help="set the class attribute family: a graphgen.models.Family with body and head; "
                "or define init_model, which makes the modules of PyTorch",
            )
        register_family(family)
        return family

    def forward(
        self,
        input_ids: Any,
        attention_mask: object = None,
        position_ids: Any = None,
        seq_ids: object = None,
        **others: object,
    ) -> Any:
        """Logits [B,S,V] of prompts ``input_ids`` [B,S], without a cache, as PyTorch computes them.

        Compiled programs do the same of what :meth:`get_model_output` and ``lm_head`` compute.

        Raises:
            GraphgenError: GG0904 for other arguments: programs verify proposals themselves.
        """
        for name, value in others.items():
            if value is not None:
                raise GraphgenError(
                    "GG0904",
                    f"{name} of {type(self).__name__}.forward is not built: a model in PyTorch "
                    "computes prompts",
                    help="leave it out; speculation runs in the programs of an application",
                )
        hidden = self.get_model_output(input_ids=input_ids, position_ids=position_ids)
        return cast(Any, self).lm_head(hidden[0])

    def get_model_output(self, *args: Any, **given: Any) -> tuple[Any, ...]:
        """Hidden states [B,S,E] after the last norm, and no caches; a subclass may override it.

        Args:
            args: ``input_ids`` s32 [B,S].
            given: that, or ``inputs_embeds`` [B,S,E]; ``position_ids`` s32 [B,S], -1 at padding.
                Masks follow from positions, and other arguments have no effect.
        """
        # Only here: the layers are those of torch.
        from graphgen.runtime.aws_nxdi.decoder_layers import run_layers

        described, x = cast(Any, self), given.get("inputs_embeds")
        if x is None:
            x = described.embed_tokens(args[0] if args else given["input_ids"])
        x = run_layers(described.layers, x, given.get("position_ids"))
        return described.norm(x), None


def is_traced(cls: type) -> bool:
    """True for a class that describes its model in PyTorch."""
    return hasattr(cls, "init_model")


def _registered_class(cls: type[NeuronBaseModel]) -> TracedFamily:
    """The family of a class in PyTorch; a class of the same name that is made later replaces it."""
    from graphgen.runtime.aws_nxdi.traced_family import traced_family

    if getattr(cls, "forward", None) is not NeuronBaseModel.forward:
        raise GraphgenError(
            "GG0904",
            f"{cls.__name__} has a forward of its own, which is not built",
            help="override get_model_output, which gives hidden states, and set lm_head to a "
            "module that gives logits; or give the class to a ModelWrapper with an input_generator",
        )
    made = vars(cls).get("_traced_family")
    if made is None:
        made = traced_family(cls)
        setattr(cls, "_traced_family", made)  # noqa: B010 - of the class itself, not of its bases
    forget_family(made.model_type)
    register_family(made)
    return made


def own_sub_models(
    models: Sequence[ModelWrapper], config: NeuronConfig | None
) -> list[ModelWrapper]:
    """The sub-models beside those of the family.

    Args:
        models: of an application.
        config: says which the family has; ``None`` for an application without a family.
    """
    known = () if config is None else tags_of(config)
    return [model for model in models if model.tag not in known]


def program_of_tag(tag: str) -> str:
    """The name of a sub-model's programs: its tag without dots, which separate their numbers."""
    return clean_name(tag, "model").replace(".", "_")


def check_wrappers(models: Sequence[ModelWrapper], config: NeuronConfig | None) -> None:
    """Refuse sub-models that would be left out, or compiled otherwise than they say (GG0904).

    Args:
        models: of an application, as a program has changed them.
        config: says which the family has; ``None`` for an application without a family.
    """
    tags: dict[str, str] = {}
    for model in models:
        name = program_of_tag(model.tag)
        if name in tags:
            same = tags[name] == model.tag
            both = (
                f"'{name}'" if same else f"'{name}', by the tags '{tags[name]}' and '{model.tag}'"
            )
            what = f"models: two sub-models are called {both}"
            raise GraphgenError("GG0904", what, help="give one of both another tag")
        tags[name] = model.tag
    if config is None:
        return
    known = tags_of(config)
    found = [model for model in models if model.tag in known]
    if len(found) < len(known):
        shown = ", ".join(model.tag for model in found) or "none"
        what = f"models: {shown}, and the programs of all tags belong together"
        help_ = f"an application compiles {', '.join(known)}, each once, of its family's programs"
        raise GraphgenError("GG0904", what, help=help_)
    for model in found:
        if type(model).input_generator is not ModelWrapper.input_generator:
            raise GraphgenError(
                "GG0904",
                f"models: the input_generator of '{model.tag}' is never called: programs have the "
                "inputs of their family",
                help="append a ModelWrapper with a tag of its own: it is traced with its inputs",
            )


@dataclass(eq=False)
class ModelWrapper:
    """The programs of one tag: one for each bucket, or for each tuple of its own inputs.

    A subclass with an ``input_generator`` and a tag that the family has not is a sub-model of its
    own: ``model_cls(config, **model_init_kwargs)``, a module of PyTorch, is traced with each tuple
    of inputs. Once the application is loaded, it is called as the module is.

    Attributes:
        config: the application's configuration.
        model_cls: the model.
        tag: AWS's name of the sub-model, such as ``context_encoding_model``.
        compiler_args: the command line of ``neuronx-cc`` without input and output.
        buckets: the sizes that programs are compiled for: tokens of a prompt for context encoding,
            attended tokens for token generation and speculation.
        model_init_kwargs: further arguments of ``model_cls``.
        program: computes, once a sub-model of its own is loaded.
    """

    config: InferenceConfig
    model_cls: Callable[..., object]
    tag: str
    compiler_args: str | None = ""
    buckets: Sequence[int] = ()
    model_init_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    program: Callable[[Sequence[object]], object] | None = field(default=None, init=False)

    def __call__(self, *inputs: object) -> Any:
        """Compute the module on ``inputs`` (GG0908 before the application is loaded)."""
        if self.program is None:
            raise GraphgenError(
                "GG0908",
                f"the sub-model '{self.tag}' cannot be called",
                help="compile(path) and load(path), or to_cpu(), of an application with it in "
                "models; sub-models of a family run in its forward",
            )
        return self.program(inputs)

    def input_generator(self) -> list[tuple[UserArray, ...]]:
        """Example inputs, one tuple a bucket: zeros, in torch if the program imported it.

        Each is (input_ids s32 [B,S], attention_mask s32 [B,A], position_ids s32 [B,S], seq_ids
        s32 [B], sampling_params f32 [B,3]); A is the bucket, and S the bucket, 1, or the
        ``speculation_length`` or ``medusa_speculation_length``.
        """
        settings = self.config.neuron_config
        batch = int(str(settings.value("batch_size")))
        names = {SPECULATION: "speculation_length", MEDUSA: "medusa_speculation_length"}
        verified = {tag: int(str(settings.value(name))) for tag, name in names.items()}
        made: list[tuple[UserArray, ...]] = []
        for bucket in self.buckets:
            size = {CONTEXT_ENCODING: bucket, **verified}.get(self.tag, 1)
            arrays = (
                np.zeros((batch, size), np.int32),
                np.ones((batch, bucket), np.int32),
                np.tile(np.arange(size, dtype=np.int32), (batch, 1)),
                np.arange(batch, dtype=np.int32),
                np.ones((batch, 3), np.float32),
            )
            made.append(tuple(as_user_array(array) for array in arrays))
        return made
