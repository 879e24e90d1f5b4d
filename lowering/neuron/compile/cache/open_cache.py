"""Opens the cache of compilations: a folder, or a URL such as ``s3://bucket/folder``."""

from __future__ import annotations

from pathlib import Path

from graphgen.lowering.neuron.compile.cache.neuron_cache import NeuronCache

# Where AWS's tools keep compilations, and the variable that names another place.
DEFAULT_ROOT, VARIABLE = "/var/tmp/neuron-compile-cache", "NEURON_COMPILE_CACHE_URL"
_FILE = "file://"


def open_cache(given: str, environment: str | None = None) -> NeuronCache:
    """The cache that is given, that of the variable, or AWS's default.

    Args:
        given: a folder or a URL, by an option; empty for none.
        environment: the value of :data:`VARIABLE`.

    Raises:
        GraphgenError: GG0705 for a URL that cannot be opened.
    """
    name = given or environment or DEFAULT_ROOT
    if "://" not in name or name.startswith(_FILE):
        return NeuronCache(Path(name.removeprefix(_FILE)).expanduser())
    from graphgen.lowering.neuron.compile.cache.cache_store import CacheStore
    from graphgen.lowering.neuron.compile.cache.shared_cache import SharedCache, mirror_of

    store = CacheStore(name)
    return SharedCache(store, mirror_of(store.url))
