"""The registry of model families, and a module from any ``config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from graphgen.errors import GraphgenError, did_you_mean
from graphgen.gc_pause import paused_collector
from graphgen.ir import DType, Module
from graphgen.models.bloom import BLOOM
from graphgen.models.dbrx import DBRX
from graphgen.models.deepseek import DEEPSEEK_V2, DEEPSEEK_V3
from graphgen.models.falcon import FALCON
from graphgen.models.family import Family, ModelConfig
from graphgen.models.first_layers import first_layers
from graphgen.models.gemma2 import GEMMA2
from graphgen.models.gemma3 import GEMMA3
from graphgen.models.glm import GLM, GLM4
from graphgen.models.gpt2 import GPT2
from graphgen.models.gpt_neox import GPT_NEOX
from graphgen.models.gpt_oss import GPT_OSS
from graphgen.models.gptj import GPTJ
from graphgen.models.granite import GRANITE
from graphgen.models.granite_moe import GRANITE_MOE
from graphgen.models.llama import LLAMA
from graphgen.models.llama4 import LLAMA4
from graphgen.models.medusa import MedusaShape
from graphgen.models.mistral import MISTRAL
from graphgen.models.mixtral import MIXTRAL
from graphgen.models.named_shapes import SHAPES, shape_name
from graphgen.models.olmo2 import OLMO2
from graphgen.models.opt import OPT
from graphgen.models.phi3 import PHI3
from graphgen.models.program_form import PHASES, ExpertOutputs, ProgramForm
from graphgen.models.qwen import QWEN2, QWEN3
from graphgen.models.qwen_moe import QWEN2_MOE, QWEN3_MOE
from graphgen.models.smollm3 import SMOLLM3
from graphgen.models.stablelm import STABLELM
from graphgen.models.twins import TwinName

_ALL: tuple[Family[Any], ...] = (
    LLAMA,
    MISTRAL,
    QWEN2,
    QWEN3,
    GEMMA3,
    GPT2,
    OPT,
    BLOOM,
    GPTJ,
    GPT_NEOX,
    MIXTRAL,
    QWEN2_MOE,
    QWEN3_MOE,
    GPT_OSS,
    OLMO2,
    DEEPSEEK_V2,
    DEEPSEEK_V3,
    PHI3,
    LLAMA4,
    GEMMA2,
    STABLELM,
    FALCON,
    SMOLLM3,
    GRANITE,
    GLM,
    GLM4,
    DBRX,
    GRANITE_MOE,
)
_known: dict[str, Family[Any]] = {family.model_type: family for family in _ALL}
FAMILIES: Mapping[str, Family[Any]] = MappingProxyType(_known)
# Model types that are always known.
BUILT_IN = frozenset(_known)
# Families by the other model types that they have.
_OTHER_TYPES: Mapping[str, Family[Any]] = MappingProxyType(
    {kind: family for family in _ALL for kind in family.other_types}
)


def register_family(family: Family[Any]) -> None:
    """Make a family known in this process; a second registration of the same one is fine.

    Raises:
        GraphgenError: GG0501 if another family has its model type.
    """
    if _known.setdefault(family.model_type, family) is not family:
        raise GraphgenError(
            "GG0501",
            f"model_type '{family.model_type}' belongs to a family that is registered already",
            help="give the new family a model type of its own",
        )


def forget_family(model_type: str) -> None:
    """Undo :func:`register_family`; built-in families stay."""
    if model_type not in BUILT_IN:
        _known.pop(model_type, None)


def known_family(kind: object) -> Family[Any] | None:
    """The family of a ``model_type``; ``None`` for an unknown one, and for no text."""
    return (FAMILIES.get(kind) or _OTHER_TYPES.get(kind)) if isinstance(kind, str) else None


def family_of(config: Mapping[str, object]) -> Family[Any]:
    """The family of a ``config.json`` (GG0501 unknown architecture)."""
    kind = config.get("model_type")
    family = known_family(kind)
    if family is None:
        raise GraphgenError(
            "GG0501",
            f"unknown architecture: model_type = {kind!r}, architectures = "
            f"{config.get('architectures')!r}",
            help=f"supported model types: {', '.join((*FAMILIES, *_OTHER_TYPES))}",
        )
    return family


def read_model_config(config: Mapping[str, object]) -> ModelConfig:
    """The typed configuration of a ``config.json``.

    Raises:
        GraphgenError: GG0501 unknown architecture, GG0502 a value that changes the mathematics and
            is not supported, GG0503 a value that makes no sense.
    """
    return family_of(config).read(config)


@paused_collector()
def build(
    config: Mapping[str, object],
    dtype: DType,
    *,
    phases: tuple[str, ...] = PHASES,
    mini: bool = False,
    twin: TwinName | None = None,
    every_token: bool = False,
    hidden_states: bool = False,
    inputs_embeds: bool = False,
    feature_layers: tuple[int, ...] = (),
    medusa: MedusaShape | None = None,
    experts: ExpertOutputs | None = None,
    layers: int | None = None,
) -> Module:
    """The logical module of a model.

    Args:
        config: a ``config.json``; Hugging Face's names.
        dtype: element type of weights, activations and caches.
        phases: which programs to build.
        mini: the same as ``twin="mini"``.
        twin: build this twin of the model instead: see :mod:`graphgen.models.twins`.
        every_token: give the logits of every token instead of each row's last.
        hidden_states: give the hidden states before each layer and after the last norm too.
        inputs_embeds: take embeddings in the place of tokens.
        feature_layers: give these hidden states, joined, as ``features`` too.
        medusa: give what heads of Medusa guess after each node of a tree too.
        experts: give these values of mixtures of experts.
        layers: keep only the first layers, at their real width; ``None`` for all.

    Raises:
        GraphgenError: GG0501, GG0502, GG0503.
    """
    form = ProgramForm(
        *(every_token, hidden_states, inputs_embeds, feature_layers, medusa),
        experts or ExpertOutputs(),
    )
    twin = twin or ("mini" if mini else None)
    family = family_of(config)
    if layers is not None:
        config = first_layers(family, config, layers)
    return family.module(config, dtype, phases, twin=twin, form=form)


def known_shape(name: str) -> Mapping[str, object]:
    """The configuration known as ``name``, e.g. ``llama-3.1-8b`` (GG0504 with near names)."""
    found = SHAPES.get(shape_name(name))
    if found is None:
        raise GraphgenError(
            "GG0504",
            f"unknown model '{name}'",
            help=did_you_mean(name.lower(), SHAPES)
            or f"graphgen models lists the known names, such as {next(iter(SHAPES))}",
        )
    return found
