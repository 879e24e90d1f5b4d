"""Programs of an application with other inputs or outputs, over the same weights and cache."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from graphgen.errors import GraphgenError
from graphgen.ir import RANK
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.model import BuiltModel, build_model
from graphgen.runtime.session.session import Session
from graphgen.runtime.weights.rank_weights import program_weights


@dataclass(slots=True)
class ProgramForms:
    """A loaded model, and its further programs, which are built when they are first used.

    Attributes:
        session: the usual programs, weights and cache.
        model: their module and settings.
    """

    session: Session
    model: BuiltModel
    _others: dict[tuple[bool, bool], Session] = field(
        default_factory=dict[tuple[bool, bool], Session]
    )

    def of(self, *, hidden_states: bool, inputs_embeds: bool) -> Session:
        """The programs that return hidden states, or take embeddings.

        Raises:
            GraphgenError: GG0904 where these programs would read other weights, or adapters.
        """
        if not hidden_states and not inputs_embeds:
            return self.session
        if self.session.adapters is not None:
            what = "hidden states and embeddings of the caller with lora_config are not built yet"
            raise GraphgenError("GG0904", what, help="give input_ids, or leave lora_config out")
        key = (hidden_states, inputs_embeds)
        if key not in self._others:
            self._others[key] = self._build(*key)
        return self._others[key]

    @contextmanager
    def chosen(self, *, hidden_states: bool, inputs_embeds: bool) -> Generator[Session]:
        """The programs of :meth:`of`, with the cache of the usual ones while the block runs."""
        session = self.of(hidden_states=hidden_states, inputs_embeds=inputs_embeds)
        if session is self.session:
            yield session
            return
        session.take_cache(self.session)
        if self.session.blocks is not None:
            session.use_layout(self.session.blocks.name, self.session.blocks.table)
        try:
            yield session
        finally:
            self.session.take_cache(session)

    def forget(self) -> None:
        """Drop the further programs, which hold the weights."""
        self._others.clear()

    def _build(self, hidden_states: bool, inputs_embeds: bool) -> Session:
        programs = self.session.programs
        settings = replace(
            self.model.settings, hidden_states=hidden_states, inputs_embeds=inputs_embeds
        )
        with programs.progress.task("building the graph"):
            built = build_model(self.model.config, settings)
        mine = {row.name: row.physical for row in program_weights(self.model.module)}
        needed = {row.name: row.physical for row in program_weights(built.module)}
        other = [name for name, type_ in needed.items() if mine.get(name) != type_]
        if other:
            raise GraphgenError(
                "GG0904",
                f"programs that take embeddings read '{other[0]}', which the loaded programs do "
                "not: other weights beside the loaded ones are not built yet",
                help="give input_ids, or leave quantized out",
            )
        weights = {
            name: value
            for name, value in self.session.weights.items()
            if name in needed or name == RANK
        }
        return Session(ExecutableCache(built.module, programs.progress, programs.folder), weights)
