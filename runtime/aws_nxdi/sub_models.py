"""Sub-models with inputs of their own: modules of PyTorch beside the programs of a family.

Each is traced with every tuple of its ``input_generator``. All are one module of programs over the
same weights and states: a buffer that programs change is a state, which all sub-models with a
buffer of this name share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.eval import Array, numpy_dtype
from graphgen.ir import Module, Role
from graphgen.lowering.abi import clean_name
from graphgen.lowering.cpu import DeviceValue
from graphgen.lowering.cpu.pjrt import configure, join, put
from graphgen.runtime.artifact import open_artifact, save_artifact
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_nxdi.base_model import ModelWrapper, program_of_tag
from graphgen.runtime.aws_nxdi.compiled_folder import SUB_MODELS, WriteFiles, compile_all
from graphgen.runtime.aws_nxdi.state_dict import StateDictCheckpoint, with_buffers
from graphgen.runtime.aws_nxdi.traced_family import keep_lines_of, refusal
from graphgen.runtime.aws_nxdi.user_arrays import as_numpy, as_user_array, is_tensor
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.validate_tensors import check_tensors
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.model import BuiltModel, on_this_machine
from graphgen.runtime.progress import Progress
from graphgen.runtime.session.empty_states import zeros_for
from graphgen.runtime.weights.rank_weights import put_weights, weights_of


@dataclass(slots=True)
class TracedSubModels:
    """The programs of sub-models.

    Attributes:
        built: one program for each tuple of inputs, ``TAG.N``; dots of the tag are ``_``.
        buffers: values of buffers that are weights, by name, for checkpoints without them.
    """

    built: BuiltModel
    buffers: dict[str, Array] = field(default_factory=dict[str, Array])

    def checkpoint(self, found: StateDictCheckpoint) -> Checkpoint:
        """The weights of a state dictionary, and the buffers it lacks (GG0602)."""
        needed = {r.name: r.logical.dims for r in self.built.module.entries(Role.WEIGHT)}
        made = with_buffers(found, self.buffers, needed.keys())
        check_tensors(made, needed, lambda name: name not in needed)
        return made


def trace_sub_models(
    models: Sequence[ModelWrapper], config: Mapping[str, object], tp: int
) -> TracedSubModels:
    """Trace sub-models, and bring them to programs of ``tp`` ranks.

    Args:
        models: the sub-models.
        config: the model as a ``config.json``.
        tp: ranks.

    Raises:
        GraphgenError: GG0904 for a sub-model without inputs of its own or with caches of
            NeuronAttentionBase, GG0903 for two that read one weight in two shapes, GG0502 and
            GG01xx with the line for what cannot be traced.
    """
    from graphgen.passes.core import run_pipeline
    from graphgen.passes.pipelines import default
    from graphgen.passes.raising.merge_programs import join as joined
    from graphgen.runtime.aws_nxdi.torch_layers import layout_rules
    from graphgen.runtime.model import steps_of

    programs: list[tuple[str, Module]] = []
    buffers: dict[str, Array] = {}
    rules: dict[str, None] = {}
    for model in models:
        examples, module = _examples(model), _module_of(model)
        for number, given in enumerate(examples):
            name = f"{program_of_tag(model.tag)}.{number}"
            programs.append((name, _traced(model, name, module, given, buffers)))
        rules |= dict.fromkeys(layout_rules(module))
    _check_alike(programs)
    made = joined(programs, phases=False)
    settings = CompileConfig(tp=tp, rules=tuple(rules) if tp > 1 else ())
    steps = steps_of(run_pipeline(made, default(on_this_machine(settings))))
    return TracedSubModels(BuiltModel(config, settings, made, steps), buffers)


def _module_of(model: ModelWrapper) -> Any:
    """The module of a sub-model, in evaluation mode (GG0502, GG0904)."""
    import torch

    from graphgen.runtime.aws_nxdi.torch_layers import NeuronAttentionBase

    name = getattr(model.model_cls, "__name__", "model_cls")
    try:
        with torch.no_grad():
            made: Any = model.model_cls(model.config, **model.model_init_kwargs)
    except GraphgenError:
        raise
    except Exception as error:
        raise refusal(error, f"{name}(config)") from error
    if any(isinstance(part, NeuronAttentionBase) for part in made.modules()):
        raise GraphgenError(
            "GG0904",
            f"models: '{model.tag}' has NeuronAttentionBase, whose cache is that of a causal LM",
            help="give the class to NeuronBaseForCausalLM as _model_cls, or keep keys and values "
            "in buffers of the module",
        )
    return made.eval()


def _examples(model: ModelWrapper) -> Sequence[tuple[Any, ...]]:
    """The tuples of inputs of a sub-model (GG0904 without any, and for other kinds)."""
    own = type(model).input_generator is not ModelWrapper.input_generator
    found: Sequence[object] = list(model.input_generator() or ()) if own else []
    for number, given in enumerate(found):
        if not isinstance(given, tuple | list):
            raise GraphgenError(
                "GG0904",
                f"models: input {number} of '{model.tag}' is a {type(given).__name__}",
                help="let input_generator give a list of tuples of tensors",
            )
    if not found:
        raise GraphgenError(
            "GG0904",
            f"models: '{model.tag}' is a sub-model beside those of the family without inputs",
            help="override input_generator of its ModelWrapper: a list of tuples of tensors",
        )
    return [tuple(given) for given in cast("Sequence[Sequence[Any]]", found)]


def _traced(
    model: ModelWrapper, name: str, module: Any, given: tuple[Any, ...], buffers: dict[str, Array]
) -> Module:
    """The program of one tuple of inputs; its inputs and outputs have its name in front."""
    from graphgen.lowering.aten.export_model import export
    from graphgen.lowering.aten.program import read_exported
    from graphgen.passes.core import run_pipeline
    from graphgen.passes.pipelines import parse
    from graphgen.passes.raising.rename_interface import rename

    keep_lines_of(module)
    try:
        exported = export(module, given)
    except GraphgenError:
        raise
    except Exception as error:
        raise refusal(error, f"the sub-model '{model.tag}'") from error
    read = read_exported(exported, model.tag)
    held = {clean_name(key, key) for key in exported.graph_signature.buffers}
    buffers |= {key: array for key, array in read.weights.items() if key in held}
    filled = next((key for key, array in read.states.items() if np.any(array)), None)
    if filled is not None:
        raise GraphgenError(
            "GG0904",
            f"models: the buffer {filled} of '{model.tag}' changes and does not start with zeros",
            help="start it with zeros, or leave it as it is",
        )
    shown = (Role.INPUT, Role.OUTPUT)
    rows = [row.name for row in read.module.interface.values() if row.role in shown]
    rename(read.module, {row: f"{name}.{row}" for row in rows})
    run_pipeline(read.module, parse("imported"))
    return read.module


def _check_alike(programs: Sequence[tuple[str, Module]]) -> None:
    """Refuse two sub-models that read one weight or state in two shapes (GG0903)."""
    known: dict[str, tuple[str, str]] = {}
    for name, module in programs:
        for row in (*module.entries(Role.WEIGHT), *module.entries(Role.STATE)):
            first, text = known.setdefault(row.name, (name, row.logical.text))
            if text != row.logical.text:
                raise GraphgenError(
                    "GG0903",
                    f"models: {row.name} is {text} in '{first}' and {row.logical.text} in '{name}'",
                    help="give one of both another name in its module",
                )


def require_sub_models(writes: WriteFiles | None, name: str) -> WriteFiles:
    """The writer of sub-models (GG0904 for an application ``name`` without any model)."""
    if writes is None:
        raise GraphgenError(
            "GG0904",
            f"{name} has no model: neither _model_cls nor sub-models",
            help="append ModelWrapper objects with an input_generator to self.models",
        )
    return writes


# Attributes that classes read themselves, or that act on sub-models.
_ACTING = (
    *("tp_degree", "world_size", "local_ranks_size", "start_rank_id", "target", "skip_warmup"),
    *("torch_dtype", "overrides_torch_dtype", "batch_size", "max_batch_size", "ctx_batch_size"),
    *("tkg_batch_size", "seq_len", "n_positions", "n_active_tokens", "max_length", "padding_side"),
    *("max_context_length", "max_new_tokens", "buckets", "enable_bucketing"),
    *("context_encoding_buckets", "token_generation_buckets"),
)


def refuse_attributes(config: NeuronConfig) -> None:
    """Refuse attributes that would change programs of a family, where there is none (GG0904)."""
    plain = NeuronConfig()
    for name, value in config.given.items():
        if name not in _ACTING and value != plain.value(name):
            raise GraphgenError(
                "GG0904",
                f"{config.owner}.{name} = {value!r} for an application without a _model_cls: its "
                "sub-models compute what their modules say",
                help=f"leave {name} out, or describe the model as a NeuronBaseModel",
            )


def refuse_target(models: Sequence[ModelWrapper], target: str | None) -> None:
    """Refuse sub-models for a Neuron target (GG0904)."""
    if target is not None:
        raise GraphgenError(
            "GG0904",
            f"models: '{models[0].tag}' for {target}: sub-models with inputs of their own are "
            "compiled for this CPU only",
            help=f"leave target out; 'graphgen import' and 'graphgen lower --target {target}' "
            "write the HLO of a module of PyTorch",
        )


def write_sub_models(
    folder: Path, traced: TracedSubModels, checkpoint: Checkpoint, progress: Progress
) -> None:
    """Compile all programs and write them with their weights as an artifact (GG0704)."""
    artifact = save_artifact(folder, traced.built, checkpoint, None, progress)
    compile_all(artifact, folder / "compiled", progress)


class RunningSubModels:
    """Sub-models that can be called.

    Args:
        programs: of all.
        weights: device values by name.
    """

    def __init__(self, programs: ExecutableCache, weights: Mapping[str, DeviceValue]) -> None:
        self.programs: Final = programs
        self.module: Final = programs.module
        self._values = dict(programs.placed(weights))
        self.reset()

    def reset(self) -> None:
        """Set all states to zeros."""
        self._values |= zeros_for(self.module.entries(Role.STATE), self.module.ranks)

    def attach(self, models: Sequence[ModelWrapper]) -> None:
        """Let sub-models be called."""
        for model in models:
            model.program = partial(self.run, model.tag)

    def run(self, tag: str, inputs: Sequence[object]) -> object:
        """Compute the module of ``tag`` on tensors of the sizes of one of its programs.

        Returns:
            A tensor, a tuple of them, or a mapping by the names that ``forward`` gives.

        Raises:
            GraphgenError: GG0402 for inputs of other sizes, and for elements of another kind or
                integers that the program's type does not hold.
        """
        arrays = [as_numpy(value) for value in inputs]
        name = self._program(tag, arrays)
        rows = self._rows(name, Role.INPUT)
        ranks = self.module.ranks
        for row, array in zip(rows, arrays, strict=True):
            dtype = numpy_dtype(self.module.interface[row].physical.dtype)
            taken = _converted(f"'{tag}': {row.removeprefix(f'{name}.')}", array, dtype)
            self._values[row] = put([taken] * ranks)
        made = self.programs.get(name).launch(self._values)
        for row in rows:
            del self._values[row]
        for row in self.module.entries(Role.STATE):
            if row.name in made:
                self._values[row.name] = join(made[row.name])
        like = next(iter(inputs), None)
        found = {
            row.removeprefix(f"{name}."): np.asarray(made[row][0])
            for row in self._rows(name, Role.OUTPUT)
        }
        return _given_back(found, torch=like is not None and is_tensor(like))

    def _rows(self, name: str, role: Role) -> list[str]:
        return [r.name for r in self.module.entries(role) if r.name.startswith(f"{name}.")]

    def _program(self, tag: str, arrays: Sequence[Array]) -> str:
        """The program of a tag for inputs of these sizes (GG0402)."""
        shapes = [tuple(array.shape) for array in arrays]
        mark = f"{program_of_tag(tag)}."
        known: list[list[tuple[int, ...]]] = []
        for function in self.module.programs():
            if not function.name.startswith(mark):
                continue
            rows = self._rows(function.name, Role.INPUT)
            wanted = [self.module.interface[row].logical.dims for row in rows]
            if wanted == shapes:
                return function.name
            known.append(wanted)
        raise GraphgenError(
            "GG0402",
            f"'{tag}' has no program for inputs of the sizes {_listed(shapes)}",
            help=f"it has {', '.join(map(_listed, known))}: pad, or add a tuple to input_generator",
        )


def _kind(dtype: np.dtype[Any]) -> str:
    """The kind of an element type; floats of ml_dtypes have none of NumPy's."""
    return {"i": "integers", "u": "integers", "b": "booleans", "c": "complex"}.get(
        dtype.kind, "floats"
    )


def _converted(what: str, array: Array, dtype: np.dtype[Any]) -> Array:
    """An input in the element type of its program; floats are rounded, integers stay (GG0402)."""
    wanted, given = _kind(dtype), _kind(array.dtype)
    if wanted != given or array.dtype.kind in "OSU":
        raise GraphgenError(
            "GG0402",
            f"{what} is {array.dtype}, and its program takes {wanted} of type {dtype}",
            help="convert it, or give input_generator a tensor of this type",
        )
    made = np.ascontiguousarray(array, dtype)
    if given == "integers" and not np.array_equal(made, array):
        raise GraphgenError(
            "GG0402",
            f"{what} has an integer that is not of type {dtype}",
            help="give input_generator a tensor of a wider type",
        )
    return made


def _listed(shapes: Sequence[Sequence[int]]) -> str:
    return " ".join(str([*shape]) for shape in shapes)


def _given_back(found: Mapping[str, Array], *, torch: bool) -> object:
    """The results in the form that the module gives, of torch if the inputs are."""

    def shown(array: Array) -> object:
        return as_user_array(array) if torch else array

    if list(found) == ["result"]:
        return shown(found["result"])
    if all(name.startswith("result.") for name in found):
        return tuple(shown(array) for array in found.values())
    return {name: shown(array) for name, array in found.items()}


def open_sub_models(
    folder: Path, models: Sequence[ModelWrapper], progress: Progress
) -> RunningSubModels:
    """The sub-models of a compiled folder, which can be called from now on.

    Raises:
        GraphgenError: GG0703 for a damaged folder, GG0908 for one without them.
    """
    home = folder / SUB_MODELS
    if not home.is_dir():
        raise GraphgenError(
            "GG0908",
            f"{folder} has no sub-models {', '.join(model.tag for model in models)}",
            help="compile the folder again with them in self.models",
        )
    artifact = open_artifact(home)
    configure(artifact.model.settings.tp)
    running = RunningSubModels(artifact.programs(progress), artifact.weights(progress))
    running.attach(models)
    return running


def start_sub_models(
    traced: TracedSubModels,
    models: Sequence[ModelWrapper],
    checkpoint: Checkpoint,
    progress: Progress,
) -> RunningSubModels:
    """Sub-models in memory, which can be called from now on."""
    module = traced.built.module
    configure(traced.built.settings.tp)
    weights = put_weights(weights_of(checkpoint, module), progress)
    running = RunningSubModels(ExecutableCache(module, progress), weights)
    running.attach(models)
    return running
