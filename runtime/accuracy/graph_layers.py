"""The hidden states of graphgen's own programs, built a second time with them as outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from graphgen.config.compile_config import CompileConfig
from graphgen.lowering.cpu.pjrt import configure
from graphgen.runtime.accuracy.step_model import HiddenStates
from graphgen.runtime.artifact import Artifact
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.open_checkpoint import as_stored
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.model import BuiltModel, build_model
from graphgen.runtime.progress import Progress
from graphgen.runtime.session.session import Session
from graphgen.runtime.weights.rank_weights import put_weights, weights_of


class GraphLayers:
    """The layers of a model that graphgen compiles.

    The programs are those of the same settings, with one more output for each layer: the same
    passes, element types and ranks. They are compiled when hidden states are read.

    Args:
        config: a ``config.json``.
        settings: of the model under test, or of the reference.
        source: prepared weights by name, or the checkpoint to prepare them from.
        progress: notified of long tasks.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        settings: CompileConfig,
        source: Checkpoint | Mapping[str, object],
        progress: Progress,
    ) -> None:
        self._built = _with_hidden_states(config, settings)
        module = self._built.module
        weights = (
            source
            if isinstance(source, Mapping)
            else put_weights(weights_of(source, module), progress)
        )
        self._session = Session(ExecutableCache(module, progress), weights)

    def hidden_states(self, tokens: Sequence[int]) -> list[HiddenStates]:
        """See :meth:`~graphgen.runtime.accuracy.step_model.LayerModel.hidden_states`."""
        self._session.reset()
        row = np.asarray([tokens], np.int32)
        result = self._session.step(row, np.arange(len(tokens), dtype=np.int32)[None])
        return [state[0].astype(np.float32) for state in result.hidden_states]


def _with_hidden_states(config: Mapping[str, object], settings: CompileConfig) -> BuiltModel:
    """Programs that give logits and hidden states; which token they would choose is left out."""
    configure(settings.tp)
    return build_model(config, replace(settings, sampling="", hidden_states=True))


def checkpoint_layers(
    checkpoint: Checkpoint, settings: CompileConfig, progress: Progress
) -> GraphLayers:
    """The layers of a checkpoint under ``settings``."""
    checkpoint = as_stored(checkpoint, keep=settings.keep_quantized)
    return GraphLayers(checkpoint.config, settings, checkpoint, progress)


def artifact_layers(artifact: Artifact, progress: Progress) -> GraphLayers:
    """The layers of an artifact, with its own prepared weights."""
    model = artifact.model
    return GraphLayers(model.config, model.settings, artifact.weights(progress), progress)
