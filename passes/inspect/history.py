"""History of a value: from its source line to the values it is lowered from, and back.

A value continues as its replacement, and as its copy where a function is rebuilt. Other ops of the
rewrite, such as the inside of an inlined composite, are made *for* it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.errors import GraphgenError, did_you_mean
from graphgen.ir import Loc, Value
from graphgen.ir.loc import UNKNOWN
from graphgen.passes.core.journal import OpSnapshot, Rewrite
from graphgen.passes.core.relation import EQUAL, Relation
from graphgen.passes.inspect.recording import ModuleSnapshot, Recording, Stage, text_of


@dataclass(frozen=True, slots=True)
class Event:
    """Event of a value in one pass.

    Attributes:
        label: the pass.
        function: where the value is now, or was last.
        what: ``copied``, ``gone``, or the rule.
        number: of the rewrite within its pass; 0 for none.
        source: file:line of the rule.
        relation: how the value is related to what it was; ``None`` for the same.
        before, after: ops as text.
    """

    label: str
    function: str
    what: str
    number: int = 0
    source: str = ""
    relation: Relation | None = None
    before: Sequence[str] = ()
    after: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class History:
    """History of a value, forwards or backwards.

    Attributes:
        origins: function and text of the values it began as.
        loc: where these were written.
        events: in order.
        now: values it is at the end.
        inside: values that were made for it, at the end.
    """

    origins: Sequence[tuple[str, str]]
    loc: Loc
    events: Sequence[Event]
    now: Sequence[Value]
    inside: Sequence[Value]


def find_value(picture: ModuleSnapshot, name: str, function: str = "") -> Value:
    """The value called ``%name`` at one moment.

    Args:
        picture: the module then.
        name: with or without ``%``.
        function: where to look; everywhere if empty.

    Raises:
        GraphgenError: GG0202 where there is none, GG0705 where several functions have one.
    """
    wanted = f"%{name.removeprefix('%')}"
    places = picture.places()
    found = [
        value
        for value, (home, _) in places.items()
        if picture.names[value] == wanted and function in ("", home)
    ]
    if not found:
        where = f"@{function}" if function else "any function"
        raise GraphgenError("GG0202", f"no value {wanted} in {where}", help=_near(picture, wanted))
    if len(found) > 1:
        homes = [places[value][0] for value in found]
        raise GraphgenError(
            "GG0705",
            f"{wanted} is in {' and '.join(f'@{home}' for home in homes)}",
            help=f"choose one: --program {homes[0]}",
        )
    return found[0]


def _near(picture: ModuleSnapshot, wanted: str) -> str:
    return did_you_mean(wanted, picture.names.values())


def forward(recording: Recording, value: Value) -> History:
    """History of a value of the input module, forwards."""
    walk = _HistoryWalk({value})
    for stage in recording.stages:
        walk.stage(stage)
    return _history(recording, [value], walk)


def backward(recording: Recording, value: Value) -> History:
    """History of a value of the final module: the branch of its origin."""
    needed = {value}
    branches: list[set[Value]] = [{value}]
    for stage in reversed(recording.stages):
        needed = _sources(stage, needed)
        branches.append(set(needed))
    branches.reverse()
    start = [item for item in recording.start.names if item in branches[0]]
    walk = _HistoryWalk(set(branches[0]))
    for stage, keep in zip(recording.stages, branches[1:], strict=True):
        walk.stage(stage, keep)
    return _history(recording, start, walk)


def _sources(stage: Stage, values: set[Value]) -> set[Value]:
    """The values before a pass that ``values`` after it have come from."""
    known = stage.before.names
    found = set(values)
    for item in reversed(stage.applications):
        made = {value for op in item.created for value in op.results}
        pairs = [(old, new) for old, new, _ in item.replaced if new in found]
        found.update(old for old, _ in pairs)
        for value in found & made:
            if all(new is not value for _, new in pairs):
                found.update(result for seen in item.before for result in seen.op.results)
        found -= made
    for old, new in reversed(stage.copies):
        if new in found:
            found.add(old)
    return {value for value in found if value in known}


@dataclass(slots=True)
class _HistoryWalk:
    """Follows values through the passes.

    Attributes:
        values: what is followed, as it is now.
        inside: what was made for it.
        events: what has happened.
    """

    values: set[Value]
    inside: set[Value] = field(default_factory=set[Value])
    events: list[Event] = field(default_factory=list[Event])

    def stage(self, stage: Stage, keep: set[Value] | None = None) -> None:
        """Follow one pass; of the branches after it, keep those through ``keep``."""
        names = stage.names()
        alive = stage.after.places()
        copies = self._copies(stage.copies)
        for item in stage.applications:
            event = self._application(stage, item, names, keep)
            if event is not None:
                self.events.append(event)
        for new in copies:
            if new in alive and (keep is None or new in keep):
                home, seen = alive[new]
                text = _line(seen, new, stage.after)
                self.events.append(Event(stage.label, home, "copied", after=[text]))
        before = stage.before.names
        lost = {value for value in self.values if value not in alive}
        self.values = {v for v in self.values if v in alive and (keep is None or v in keep)}
        self.inside = {v for v in self.inside if v in alive and (keep is None or v in keep)}
        if lost and not self.values and not self.inside:
            texts = [before[value] for value in lost if value in before]
            home = next((p[0] for v, p in stage.before.places().items() if v in lost), "")
            self.events.append(Event(stage.label, home, "gone", before=sorted(texts)))

    def _copies(self, copies: Sequence[tuple[Value, Value]]) -> list[Value]:
        """Follow the copies of what is followed; returns those of the value itself."""
        found: dict[Value, None] = {}
        for old, new in copies:
            if old in self.values:
                self.values.add(new)
                found[new] = None
            elif old in self.inside:
                self.inside.add(new)
        return list(found)

    def _application(
        self, stage: Stage, item: Rewrite, names: Mapping[Value, str], keep: set[Value] | None
    ) -> Event | None:
        """Apply one rewrite to the followed values."""
        pairs = [pair for pair in item.replaced if pair[0] in self.values]
        within = [pair for pair in item.replaced if pair[0] in self.inside]
        rooted = any(value in self.values for seen in item.before for value in seen.op.results)
        made = {value for op in item.created for value in op.results}
        if within or any(v in self.inside for seen in item.before for v in seen.op.results):
            self.inside |= made | {new for _, new, _ in within}
        if not pairs and not (rooted and (made or item.rule == "erase")):
            return None
        news = {new for _, new, _ in pairs}
        self.values |= news
        self.inside |= made - news
        if keep is not None and not (news | made) & keep and item.rule != "erase":
            # Another branch: what this one goes on as is not asked about.
            self.inside -= made
            return None
        relation = next((how for _, _, how in pairs if how is not EQUAL), None)
        after = [text_of(seen, names) for seen in item.after]
        after = after or [_existing(new, names) for _, new, _ in pairs]
        before = [text_of(seen, names) for seen in item.before]
        return Event(
            stage.label,
            item.function,
            item.rule,
            item.number,
            item.source,
            relation,
            before,
            after,
        )


def _existing(value: Value, names: Mapping[Value, str]) -> str:
    """A value that was there already."""
    return f"{names[value]} : {value.type.text}"


def _line(seen: OpSnapshot | None, value: Value, picture: ModuleSnapshot) -> str:
    if seen is None:
        return f"arg {picture.names[value]} : {value.type.text}"
    return text_of(seen, picture.names)


def _history(recording: Recording, start: Sequence[Value], walk: _HistoryWalk) -> History:
    places = recording.start.places()
    origins: list[tuple[str, str]] = []
    where = UNKNOWN
    for value in start:
        home, seen = places[value]
        origins.append((home, _line(seen, value, recording.start)))
        if seen is not None and where is UNKNOWN:
            where = seen.op.loc
    order = {value: place for place, value in enumerate(recording.end.names)}
    return History(
        list(dict.fromkeys(origins)),
        where,
        walk.events,
        _ordered(walk.values, order),
        _ordered(walk.inside - walk.values, order),
    )


def _ordered(values: Iterable[Value], order: Mapping[Value, int]) -> list[Value]:
    return sorted((value for value in values if value in order), key=order.__getitem__)
