"""Open a draft of EAGLE for an engine, and say how its target is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from graphgen.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Role
from graphgen.runtime.checkpoint.validate_tensors import check_tensors
from graphgen.runtime.engine import Engine, locate_checkpoint
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.launching.feature_log import FEATURES, FeatureLog
from graphgen.runtime.model import build_eagle
from graphgen.runtime.progress_callback import Progress
from graphgen.runtime.session import Session
from graphgen.runtime.speculation.draft_settings import draft_settings
from graphgen.runtime.speculation.eagle.eagle_checkpoint import EagleCheckpoint, is_eagle
from graphgen.runtime.speculation.eagle.eagle_draft import EagleDraft
from graphgen.runtime.weights.rank_weights import put_weights, weights_of


def eagle_options(draft: str, model: str) -> Mapping[str, object]:
    """The options of a target that an EAGLE draft needs; none for another draft.

    Args:
        draft: path or name of the draft.
        model: path or name of the target.
    """
    own = locate_checkpoint(draft)
    if not is_eagle(own):
        return {}
    return {"feature_layers": EagleCheckpoint(own, locate_checkpoint(model)).feature_layers()}


def open_eagle(
    engine: Engine, draft: EagleCheckpoint, max_len: int, progress: Progress
) -> EagleDraft:
    """The proposer of a draft, which reads the features of the engine's launches from now on.

    Args:
        engine: of the target.
        draft: completed by the target.
        max_len: longest sequence that the draft proposes tokens for; 0 for the target's.
        progress: notified of long tasks.

    Raises:
        GraphgenError: GG0705 for a target without the features that the draft takes, GG0602 for
            tensors that are missing.
    """
    return eagle_draft(engine.session, engine.model.settings, draft, progress, max_len)


def eagle_draft(
    target: Session,
    settings: CompileConfig,
    draft: EagleCheckpoint,
    progress: Progress,
    max_len: int = 0,
) -> EagleDraft:
    """The proposer of a draft, for a session with these settings; see :func:`open_eagle`."""
    check_features(target, draft)
    positions = cast("int | None", draft.config.get("max_position_embeddings"))
    own = draft_settings(settings, target.rows, positions, max_len)
    session = eagle_session(draft, own, progress)
    log = target.feature_log = FeatureLog()
    return EagleDraft(session, log, draft.token_ids)


def eagle_session(draft: EagleCheckpoint, settings: CompileConfig, progress: Progress) -> Session:
    """The programs of a draft with its weights (GG0602)."""
    built = build_eagle(draft.config, settings)
    needed = {row.name: row.logical.dims for row in built.module.entries(Role.WEIGHT)}
    check_tensors(draft, needed, draft.ignorable)
    weights = put_weights(weights_of(draft, built.module), progress)
    return Session(ExecutableCache(built.module, progress), weights)


def check_features(target: Session, draft: EagleCheckpoint) -> None:
    """Refuse a target without the features that a draft takes (GG0705)."""
    wanted = cast(int, draft.config["feature_size"])
    row = target.module.interface.get(FEATURES)
    given = 0 if row is None else cast(int, row.logical.shape[-1])
    if given != wanted:
        raise GraphgenError(
            "GG0705",
            f"the draft {draft.path} takes features of {wanted} numbers a token, and the programs "
            f"of the model return {given}",
            help=f"compile the model with feature_layers={list(draft.feature_layers())}, as "
            "generate --draft-model-path does, for example into another --artifact",
        )
