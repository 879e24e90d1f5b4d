"""A folder that lets a pass fail again: the module, the pass with its options, versions, plugins.

The module is that before the pass that fails, and the pipeline that pass alone, where this fails
too; otherwise they are what was run from the start.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import platform
import secrets
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from graphgen.atomic_write import plain_name, read_regular, unwritable
from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.json_value import OTHER_FORM, parse_json
from graphgen.limits import JSON_BYTES, TEXT_BYTES
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.core.crash import Crash
from graphgen.passes.core.fuel import NO_LIMIT, Fuel, labels
from graphgen.passes.core.registry import LOADED, load_file
from graphgen.passes.core.settings import OFF, debug
from graphgen.text import parse, print_module
from graphgen.version import __version__

# Installed packages are named by their versions, not copied.
_INSTALLED = {"site-packages", "dist-packages"}


def plugin_names(plugins: Sequence[Path]) -> dict[Path, str]:
    """Plugin -> its name in a folder; two plugins may share a base name."""
    taken = {name: file for plugin in plugins for name, file in neighbours(plugin).items()}
    found: dict[Path, str] = {}
    for plugin in plugins:
        path = plugin.resolve()
        used = path.name in found.values() or taken.get(path.name, path) != path
        found.setdefault(path, f"{len(found)}_{path.name}" if used else path.name)
    return found


def plugin_files(plugins: Sequence[Path]) -> dict[str, Path]:
    """Name in a folder -> file, of plugins and of the modules beside them that they import."""
    found = {name: file for plugin in plugins for name, file in neighbours(plugin).items()}
    return found | {name: path for path, name in plugin_names(plugins).items()}


def neighbours(plugin: Path) -> dict[str, Path]:
    """Modules in the folder of a plugin that it imports, directly or through others.

    Returns:
        The path of each relative to a folder from which it is imported by the same name -> file.
    """
    folder = plugin.resolve().parent
    found: dict[str, Path] = {}
    work: list[tuple[Path, str]] = [(plugin.resolve(), "")]
    while work:
        file, package = work.pop()
        for name in dict.fromkeys(_imports(file, package)):
            source = _source(name, folder)
            if source is None:
                continue
            inner = source.name == "__init__.py"
            target = name.replace(".", "/") + ("/__init__.py" if inner else ".py")
            if target not in found:
                found[target] = source
                work.append((source, name if inner else name.rpartition(".")[0]))
    return found


def _imports(file: Path, package: str) -> Iterator[str]:
    """Names of modules that a file may import, those of their packages included."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            home = _home(node, package)
            if home is not None:
                for alias in node.names:
                    yield from _with_parents(".".join(filter(None, (home, alias.name))))


def _home(node: ast.ImportFrom, package: str) -> str | None:
    """The module that names are imported from; ``None`` for one above the top package."""
    if not node.level:
        return node.module
    parts = package.split(".") if package else []
    if node.level > len(parts):
        return None
    return ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])])


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])


def _source(name: str, folder: Path) -> Path | None:
    """The file of a module if it is in ``folder``, not installed, and not one of graphgen's."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top == "graphgen":
        return None
    loaded = getattr(sys.modules.get(name), "__file__", None)
    base = folder.joinpath(*name.split("."))
    tried = [Path(loaded)] if loaded else [base.with_name(f"{base.name}.py"), base / "__init__.py"]
    for path in tried:
        file = path.resolve()
        inside = file.is_relative_to(folder) and not _INSTALLED.intersection(file.parts)
        if inside and file.suffix == ".py" and file.is_file():
            return file
    return None


MODULE, FACTS = "repro.gg", "repro.json"
_PACKAGES = ("numpy", "ml_dtypes", "jax", "jaxlib")


@dataclass(frozen=True, slots=True)
class Failure:
    """Kind and message of a failure.

    Attributes:
        type: of the exception.
        code: of a :class:`GraphgenError`, else empty.
        what: the message.
    """

    type: str
    code: str
    what: str

    def like(self, other: Failure) -> bool:
        """True for the same failure; messages may differ in the names of values."""
        return (self.type, self.code) == (other.type, other.code)

    def __str__(self) -> str:
        return f"{self.code or self.type}: {self.what}"


def failure_of(error: Exception) -> Failure:
    """The failure of an exception."""
    if isinstance(error, GraphgenError):
        return Failure(type(error).__name__, error.code, error.what)
    return Failure(type(error).__name__, "", str(error))


@dataclass(frozen=True, slots=True)
class Reproducer:
    """Contents of a folder besides the module.

    Attributes:
        pipeline: what is run.
        fuel: how many rewrites its last pass may make, ``None`` for no limit.
        verify: what is checked after each pass.
        failure: what happened.
        failed: the pass that failed.
        whole: the pipeline it was part of.
        reproduces: whether the folder failed in the same way when it was written.
        hash_seed: ``PYTHONHASHSEED`` of the process.
        versions: of graphgen, Python and the libraries.
        plugins: files in the folder that are run first; modules they import are beside them.
        traceback: of a defect.
    """

    pipeline: str
    fuel: int | None
    verify: int
    failure: Failure
    failed: str
    whole: str
    reproduces: bool
    hash_seed: str
    versions: Mapping[str, str]
    plugins: Sequence[str] = ()
    traceback: str = ""


def write_reproducer(crash: Crash, folder: str, error: Exception) -> Path:
    """Write a folder named after what is in it; the same crash twice is one folder.

    Args:
        crash: what was running.
        folder: where the new folder goes; empty for the folder for temporary files.
        error: what happened.

    Raises:
        GraphgenError: GG0704 when it cannot be written; then there is none.
    """
    failure = failure_of(error)
    module, passes, reproduces = _smallest(crash, failure)
    assert crash.number is not None
    facts = Reproducer(
        ",".join(map(str, passes)),
        crash.fuel,
        int(crash.verify),
        failure,
        labels(crash.passes)[crash.number],
        ",".join(map(str, crash.passes)),
        reproduces,
        os.environ.get("PYTHONHASHSEED", "random"),
        _versions(),
        list(plugin_names(_plugins()).values()),
        "" if failure.code else "".join(traceback.format_exception(error)),
    )
    text = print_module(module)
    key = hashlib.sha256(
        f"{print_module(module, locs=False)}{facts.pipeline}{failure}".encode()
    ).hexdigest()[:10]
    home = Path(folder or tempfile.gettempdir()) / f"graphgen-crash-{key}"
    _write_folder(home, text, facts)
    return home


def _smallest(crash: Crash, failure: Failure) -> tuple[Module, Sequence[object], bool]:
    """The module before the last pass and that pass if they fail alike, else all there was."""
    assert crash.number is not None
    passes = crash.passes[: crash.number + 1]
    start, before = crash.start.module(), crash.start.module()
    with debug(level=0, dump="", fuel="", crash=OFF, verify=0):
        try:
            run_pipeline(before, passes[:-1])
        except Exception:
            before = None
    for module, some in ((before, passes[-1:]), (start, passes)):
        if module is None:
            continue
        found = _fails(print_module(module), ",".join(map(str, some)), crash)
        if found is not None and found.like(failure):
            return module, some, True
    return start, passes, False


def _fails(text: str, pipeline: str, crash: Crash) -> Failure | None:
    try:
        _run(text, pipeline, crash.fuel, int(crash.verify))
    except Exception as error:
        return failure_of(error)
    return None


def _run(text: str, pipeline: str, fuel: int | None, verify: int) -> None:
    passes = parse_pipeline(pipeline)
    limit = NO_LIMIT if fuel is None else Fuel(None, {labels(passes)[-1]: fuel})
    with debug(level=0, dump="", crash=OFF):
        run_pipeline(parse(text), passes, fuel=limit, verify=verify)


def _plugins() -> list[Path]:
    """Plugins that this process has loaded; those deleted since cannot be copied."""
    return [path for path in LOADED if path.is_file()]


def _versions() -> dict[str, str]:
    found = {"graphgen": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _write_folder(home: Path, text: str, facts: Reproducer) -> None:
    """The folder appears when everything in it is written."""
    part = home.with_name(f".{home.name}.{secrets.token_hex(4)}.part")
    try:
        part.mkdir(parents=True)
        (part / MODULE).write_text(text, encoding="utf-8")
        (part / FACTS).write_text(json.dumps(asdict(facts), indent=2) + "\n", encoding="utf-8")
        for name, path in plugin_files(_plugins()).items():
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, part / name)
        if not home.exists():
            part.replace(home)
    except OSError as error:
        raise unwritable(str(home), error.strerror or str(error)) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Replay:
    """Result of replaying a folder.

    Attributes:
        recorded: what is in it.
        now: how it failed now, ``None`` when it did not.
        differences: versions that are others now: name, then and now.
        error: the exception itself.
    """

    recorded: Reproducer
    now: Failure | None
    differences: Sequence[tuple[str, str, str]] = ()
    error: Exception | None = field(default=None, repr=False)

    @property
    def same(self) -> bool:
        """True if it failed as recorded."""
        return self.now is not None and self.now.like(self.recorded.failure)


def replay(folder: Path) -> Replay:
    """Run what is in a folder of :func:`write_reproducer`.

    Raises:
        GraphgenError: GG0705 when it is no such folder.
    """
    facts, text = _read(folder)
    for name in facts.plugins:
        load_file(str(folder / name))
    versions = _versions()
    names = [*facts.versions, *[name for name in versions if name not in facts.versions]]
    pairs = [(name, facts.versions.get(name, "none"), versions.get(name, "none")) for name in names]
    differences = [pair for pair in pairs if pair[1] != pair[2]]
    try:
        _run(text, facts.pipeline, facts.fuel, facts.verify)
    except Exception as error:
        return Replay(facts, failure_of(error), differences, error)
    return Replay(facts, None, differences)


def _read(folder: Path) -> tuple[Reproducer, str]:
    try:
        known = cast("dict[str, Any]", parse_json(read_regular(folder / FACTS, JSON_BYTES)))
        text = read_regular(folder / MODULE, TEXT_BYTES).decode()
        failure = Failure(**known.pop("failure"))
        for name in known.get("plugins", ()):
            plain_name(name)
        return Reproducer(failure=failure, **known), text
    except (OSError, *OTHER_FORM) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise GraphgenError(
            "GG0705",
            f"'{folder}' is not the folder of a crash: {reason}",
            help=f"it holds {MODULE} and {FACTS}; the error of a pass that fails names one",
        ) from error
