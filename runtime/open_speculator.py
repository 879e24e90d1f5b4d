"""Open a speculator for an engine: a draft model, the model's own first layers, or its prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Role
from graphgen.lowering.cpu.processes import alone, count
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.validate_tensors import check_tensors
from graphgen.runtime.engine import Engine, locate_checkpoint
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.model import build_eagle, build_model
from graphgen.runtime.progress import Progress
from graphgen.runtime.session.feature_log import FEATURES, FeatureLog
from graphgen.runtime.session.session import Session
from graphgen.runtime.speculation.draft_model import DraftModel, draft_settings
from graphgen.runtime.speculation.eagle_checkpoint import EagleCheckpoint, is_eagle
from graphgen.runtime.speculation.eagle_draft import EagleDraft
from graphgen.runtime.speculation.prompt_lookup import PromptLookup
from graphgen.runtime.speculation.proposal import Proposal, Proposer, SpeculativeRow, WarmedProposer
from graphgen.runtime.speculation.speculator import Speculator, check_verifies
from graphgen.runtime.tokenizer.tokenizer import Tokenizer, load_tokenizer
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


class LocalProposer:
    """A proposer whose programs run on devices of this process only.

    Args:
        proposer: opened inside of :func:`~graphgen.lowering.cpu.processes.alone`.
    """

    def __init__(self, proposer: Proposer) -> None:
        self.proposer: Final = proposer

    def start(self) -> None:
        """Begin new sequences in all rows."""
        with alone():
            self.proposer.start()

    def warm_up(self) -> None:
        """Compile or load every program; no row changes."""
        if isinstance(self.proposer, WarmedProposer):
            with alone():
                self.proposer.warm_up()

    def propose(self, rows: Sequence[SpeculativeRow]) -> list[Proposal]:
        """Tokens that may follow each row."""
        with alone():
            return self.proposer.propose(rows)


@dataclass(frozen=True, slots=True)
class SpeculationOptions:
    """The request for proposals: one of the first three.

    Attributes:
        draft: path or name of a smaller model with the same tokenizer, or of a draft of EAGLE;
            empty for none.
        layers: number of first layers of the model itself that propose; 0 for none.
        lookup: longest run of last tokens that is looked for earlier in the sequence; 0 for none.
        length: k, tokens of a row that a step verifies: the last one and k - 1 proposals.
        model: path or name of the model itself, whose first layers, or embedding and head, are
            read again.
        max_len: longest sequence that a draft proposes tokens for; 0 for the target's.
        adaptive: propose as many tokens at each step as pay, k - 1 at most.
    """

    draft: str = ""
    layers: int = 0
    lookup: int = 0
    length: int = field(kw_only=True)
    model: str = ""
    max_len: int = 0
    adaptive: bool = False


def open_speculator(engine: Engine, options: SpeculationOptions, progress: Progress) -> Speculator:
    """The speculator of an engine; in a launch that of process 0.

    Raises:
        GraphgenError: GG05xx and GG06xx for the draft, GG0705 for a draft with another tokenizer
            and for programs that were compiled for fewer tokens.
    """
    check_verifies(engine.session, options.length)
    if options.lookup:
        proposer: Proposer = PromptLookup(options.lookup)
    elif count() == 1:
        proposer = _draft(engine, options, progress)
    else:
        # It has one rank: process 0, which alone proposes, runs it.
        with alone():
            proposer = LocalProposer(_draft(engine, options, progress))
    return Speculator(proposer, options.length, adaptive=options.adaptive)


def _draft(engine: Engine, options: SpeculationOptions, progress: Progress) -> Proposer:
    engine.programs.require_open("the draft")
    path = options.draft or options.model
    with progress.task("opening the draft"):
        checkpoint = locate_checkpoint(path)
        if options.draft and is_eagle(checkpoint):
            eagle = EagleCheckpoint(checkpoint, locate_checkpoint(options.model))
            return open_eagle(engine, eagle, options.max_len, progress)
        config = (
            of_first_layers(checkpoint, options.layers) if options.layers else checkpoint.config
        )
        if options.draft:
            check_same_tokens(engine.tokenizer, load_tokenizer(checkpoint.path), path)
    session = _session(engine, checkpoint, config, options.max_len, progress)
    # Programs that choose tokens have no logits.
    return DraftModel(session, engine.session.vocabulary or engine.session.token_ids)


def of_first_layers(checkpoint: Checkpoint, layers: int) -> Mapping[str, object]:
    """The configuration of a checkpoint's model with its first layers only."""
    from graphgen.models import family_of
    from graphgen.models.first_layers import first_layers

    return first_layers(family_of(checkpoint.config), checkpoint.config, layers)


def _session(
    engine: Engine,
    checkpoint: Checkpoint,
    config: Mapping[str, object],
    max_len: int,
    progress: Progress,
) -> Session:
    """The draft's programs and weights."""
    from graphgen.models import read_model_config

    most = read_model_config(config).max_position_embeddings
    built = build_model(
        config, draft_settings(engine.model.settings, engine.session.rows, most, max_len)
    )
    weights = put_weights(weights_of(checkpoint, built.module), progress)
    return Session(ExecutableCache(built.module, progress), weights)


def check_same_tokens(target: Tokenizer, draft: Tokenizer, path: str | Path) -> None:
    """Refuse a draft whose token ids mean other texts (GG0705)."""
    one, other = target.vocabulary(), draft.vocabulary()
    if one == other:
        return
    shared = one.keys() & other.keys()
    different = next((text for text in sorted(shared) if one[text] != other[text]), "")
    why = (
        f"{different!r} is token {one[different]} of the model and {other[different]} of the draft"
        if different
        else f"the model has {len(one)} tokens and the draft {len(other)}"
    )
    raise GraphgenError(
        "GG0705",
        f"the draft {path} has another tokenizer: {why}",
        help="give a draft of the same model family, or --prompt-lookup 3, which needs none",
    )
