"""The cache at an S3 URL: s3fs against moto's server, on this machine.

Neither is a requirement: ``pip install 'moto[server]' s3fs``, in an environment of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from graphgen.lowering.compile_cache.cache_store import CacheStore
from graphgen.lowering.compile_cache.shared_cache import open_cache
from graphgen.lowering.neuronx_cc.driver import CompileDriver
from graphgen.lowering.neuronx_cc.program_plan import PlannedProgram
from tests.fake_compiler.fake_neuron import FakeNeuron
from tests.lowering.neuron.small_neff import small_neff
from tests.lowering.neuron.test_neuron_cache import KEY
from tests.lowering.neuron.test_shared_cache import keep, shared

pytestmark = pytest.mark.slow


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of a bucket; s3fs finds the server as it finds any endpoint."""
    reason = "needs moto's server and s3fs: pip install 'moto[server]' s3fs"
    for name in ("s3fs", "moto", "flask"):
        pytest.importorskip(name, reason=reason)
    boto3: Any = pytest.importorskip("boto3", reason=reason)
    from moto.server import ThreadedMotoServer  # pyright: ignore

    server: Any = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    # Clients are kept, with the address of an earlier test's server.
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    client = boto3.client("s3")
    client.create_bucket(Bucket="shared")
    yield client
    server.stop()


def test_machines_share_compilations(bucket: Any, tmp_path: Path):
    url = "s3://shared/cache"
    keep(tmp_path / "a", url=url)
    keys = [row["Key"] for row in bucket.list_objects_v2(Bucket="shared")["Contents"]]
    assert {Path(key).name for key in keys} == {
        *("compile_flags.json", "graphgen.json"),
        *("model.done", "model.hlo_module.pb", "model.neff"),
    }
    assert all(key.startswith("cache/neuronxcc-2.27.5334.0+abc/MODULE_") for key in keys)
    found = shared(tmp_path / "b", url).find(KEY)
    assert found is not None
    assert (found.folder / "model.neff").read_bytes() == small_neff(b"one")
    cache = open_cache(url)
    (entry,) = cache.entries()
    assert (entry.state, entry.damage()) == ("done", "")
    assert cache.unused_days(entry) < 1
    # One that was changed there is not used, and written again.
    neff = next(key for key in keys if key.endswith("model.neff"))
    bucket.put_object(Bucket="shared", Key=neff, Body=small_neff(b"other"))
    assert shared(tmp_path / "c", url).find(KEY) is None
    keep(tmp_path / "d", b"two", url)
    again = shared(tmp_path / "e", url).find(KEY)
    assert again is not None
    assert not again.damage()
    cache = open_cache(url)
    (entry,) = cache.entries()
    assert cache.remove_if_free(entry)
    assert "Contents" not in bucket.list_objects_v2(Bucket="shared")


def test_the_first_of_two_writers_wins(bucket: Any):
    store = CacheStore("s3://shared/cache")
    # Both have seen that there is no file.
    store.files = lambda folder: {}
    assert store.create("folder", "model.neff", b"first")
    assert not store.create("folder", "model.neff", b"second")
    assert store.read("folder", "model.neff") == b"first"
    assert bucket.get_object(Bucket="shared", Key="cache/folder/model.neff")["Body"].read() == (
        b"first"
    )


def test_a_driver_compiles_what_no_machine_has(
    bucket: Any,
    tmp_path: Path,
    fake: FakeNeuron,
    driver: Callable[..., CompileDriver],
    planned: Callable[..., list[PlannedProgram]],
):
    programs = planned(tmp_path / "out", only="prefill")
    origins: list[str] = []
    for mirror in "ab":
        made = driver()
        made.cache = shared(tmp_path / mirror, "s3://shared/cache")
        origins += [item.origin for item in made.run(programs)]
    assert origins == ["compiled", "cache"]
    assert len(fake.calls) == 1
