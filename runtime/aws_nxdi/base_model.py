"""The model of an application, and the programs that an application compiles of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.exec.decode_steps import STEPS
from graphgen.ir import VERIFY, VERIFY_TREE
from graphgen.models import register_family
from graphgen.models.family import Family
from graphgen.runtime.aws_config.draft_checks import is_fused
from graphgen.runtime.aws_config.inference_config import InferenceConfig
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_nxdi.user_arrays import UserArray, as_user_array

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


class NeuronBaseModel:
    """A model: names the family that describes its computation.

    A subclass sets :attr:`family`, and its class is the ``_model_cls`` of an application. Modules
    of PyTorch (``init_model``) are not traced: the computation is the family's ``body`` and
    ``head``.

    Attributes:
        family: the model's family.
    """

    family: ClassVar[Family[Any]]

    def __init__(self, *arguments: object, **values: object) -> None:
        raise GraphgenError(
            "GG0904",
            f"{type(self).__name__} names a model's family, and its objects do not compute",
            help="give the class to an application: _model_cls; NeuronLlamaForCausalLM(MODEL_PATH, "
            "config).to_cpu() runs a model",
        )

    @classmethod
    def registered_family(cls) -> Family[Any]:
        """The family, known to the process from now on.

        Raises:
            GraphgenError: GG0904 for a class that describes the model in PyTorch, GG0501 for a
                model type that belongs to another family.
        """
        family = getattr(cls, "family", None)
        if family is None or hasattr(cls, "init_model"):
            raise GraphgenError(
                "GG0904",
                f"{cls.__name__} describes a model by modules of PyTorch, which are not traced",
                help="set the class attribute family: a graphgen.models.Family with body and head",
            )
        register_family(family)
        return family


def check_wrappers(models: Sequence[ModelWrapper], config: NeuronConfig) -> None:
    """Refuse sub-models that would be left out, or compiled otherwise than they say (GG0904).

    Args:
        models: of an application, as a program has changed them.
        config: says which there are.
    """
    known, tags = tags_of(config), [model.tag for model in models]
    remedy = f"an application compiles {', '.join(known)}, each once, of its family's programs"
    if other := [tag for tag in tags if tag not in known]:
        what = f"models: '{other[0]}' is a sub-model beside those of the family, which is not built"
        raise GraphgenError("GG0904", f"{what} yet", help=remedy)
    if sorted(tags) != sorted(known):
        what = f"models: {', '.join(tags) or 'none'}, and the programs of all tags belong together"
        raise GraphgenError("GG0904", what, help=remedy)
    for model in models:
        if type(model).input_generator is not ModelWrapper.input_generator:
            raise GraphgenError(
                "GG0904",
                f"models: the input_generator of '{model.tag}' is never called: programs have the "
                "inputs of their family",
                help="leave the method out, or import a module of PyTorch with its own inputs: "
                "graphgen import",
            )


@dataclass(frozen=True)
class ModelWrapper:
    """The programs of one tag: one for each bucket.

    Attributes:
        config: the application's configuration.
        model_cls: the model.
        tag: AWS's name of the sub-model, such as ``context_encoding_model``.
        compiler_args: the command line of ``neuronx-cc`` without input and output.
        buckets: the sizes that programs are compiled for: tokens of a prompt for context encoding,
            attended tokens for token generation and speculation.
    """

    config: InferenceConfig
    model_cls: type[NeuronBaseModel]
    tag: str
    compiler_args: str = ""
    buckets: Sequence[int] = ()

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
