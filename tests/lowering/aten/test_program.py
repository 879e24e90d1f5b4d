"""Exported programs as modules: names, states, places in the user's code, files, refusals."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from graphgen.errors import GraphgenError
from graphgen.ir import Module, Role
from graphgen.lowering.aten.program import read_exported
from graphgen.lowering.open import Source, open_module, open_with_values
from graphgen.text import parse, print_module
from tests.oracles.exported import export


class Counter(nn.Module):
    """What a program keeps: a buffer of the checkpoint, one beside it, and how far it counted."""

    scale: Tensor
    table: Tensor
    large: Tensor
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)
        self.register_buffer("scale", torch.tensor([1.5, -2.0]))
        self.register_buffer("table", torch.arange(2.0), persistent=False)
        self.register_buffer("large", torch.rand(5000), persistent=False)
        self.register_buffer("total", torch.tensor([10.0, 20.0]))

    def forward(self, x: Tensor, *, more: dict[str, Tensor]) -> dict[str, Any]:
        y = self.inner(x) * self.scale + self.table + more["bias"]
        self.total.add_(y.sum(0))
        return {"sums": (self.total * 1, y), "mean": self.large.mean(), "none": None}


def given() -> tuple[Tensor, dict[str, Any]]:
    torch.manual_seed(0)
    return torch.rand(4, 3), {"more": {"bias": torch.rand(2)}}


@pytest.fixture(scope="module")
def counter() -> Counter:
    torch.manual_seed(1)
    return Counter()


def names(module: Module, role: Role) -> list[str]:
    return [row.name for row in module.entries(role)]


def test_the_interface_is_the_models(counter: Counter):
    x, more = given()
    read = read_exported(export(counter, x, kwargs=more), "models/counter")
    assert read.module.name == "counter"
    # What no checkpoint holds is written down, unless it is large.
    assert names(read.module, Role.WEIGHT) == ["inner.weight", "inner.bias", "scale", "large"]
    assert names(read.module, Role.STATE) == ["total"]
    assert names(read.module, Role.INPUT) == ["x", "more_bias"]
    assert names(read.module, Role.OUTPUT) == ["sums.0", "sums.1", "mean"]
    assert read.states["total"].tolist() == [10.0, 20.0]
    inputs = {**read.weights, "x": x.numpy(), "more_bias": more["more"]["bias"].numpy()}
    total, wanted = read.states["total"], Counter()
    wanted.load_state_dict(counter.state_dict())
    wanted.large = counter.large
    for _ in range(2):
        found: Any = read.module.evaluate({**inputs, "total": total})
        expected = wanted(x, **more)
        total = found["total"]
        np.testing.assert_allclose(found["sums.0"], expected["sums"][0].detach(), rtol=1e-6)
        np.testing.assert_allclose(found["sums.1"], expected["sums"][1].detach(), rtol=1e-6)
        np.testing.assert_allclose(found["mean"], expected["mean"].detach(), rtol=1e-6)


def test_every_op_knows_its_line_and_its_module(counter: Counter):
    x, more = given()
    module = read_exported(export(counter, x, kwargs=more)).module
    (dot,) = [op for op in module.function("main").ops if op.name == "dot_general"]
    lines = Path(__file__).read_text().splitlines()
    line = next(i for i, text in enumerate(lines, 1) if "self.inner(x)" in text)
    place = dot.loc
    assert (place.file, place.line) == ("tests/lowering/aten/test_program.py", line)
    assert place.scope == "inner"
    assert print_module(parse(print_module(module))) == print_module(module)


def test_types_that_numpy_does_not_know_keep_their_bits():
    layer = nn.Linear(4, 2, dtype=torch.bfloat16)
    x = torch.rand(3, 4).bfloat16()
    read = read_exported(export(layer, x))
    found = np.asarray(read.module.evaluate({**read.weights, "input": _bits(x)})["result"])
    assert read.weights["weight"].tobytes() == _bits(layer.weight).tobytes()
    # Half a unit in the last place of the terms, which may cancel.
    expected = layer(x).detach().float()
    np.testing.assert_allclose(found.astype(np.float32), expected, rtol=1e-2, atol=2**-9)


def _bits(x: Tensor) -> np.ndarray:
    from graphgen.lowering.aten.program import array_of

    return array_of(x)


# ---- what is refused -----------------------------------------------------------------------------


class Unknown(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.svd(x)[1] + torch.special.erfcx(x).sum() + torch.special.erfcx(x).mean()


class ByData(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten()[x.flatten() > 0]


class HoldsComplex(nn.Module):
    turn: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("turn", torch.polar(torch.ones(9), torch.rand(9)))

    def forward(self, x: Tensor) -> Tensor:
        return (torch.complex(x, x) * self.turn).abs()


class GivesComplex(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.polar(x, x)


class Magnitude(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.abs()


class InBetween(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.polar(x, x).abs()


class RaisesToComplex(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.polar(x, x).exp().abs()


def refused(model: nn.Module, **options: Any) -> GraphgenError:
    with pytest.raises(GraphgenError) as caught:
        read_exported(export(model, torch.rand(9, 9), **options), "mine")
    return caught.value


def test_all_unknown_ops_are_named_at_once():
    error = refused(Unknown())
    assert error.code == "GG0103"
    assert "_linalg_svd.default" in error.what
    assert (
        "special_erfcx.default: 2 times, first at tests/lowering/aten/test_program.py" in error.note
    )
    assert error.where == "mine"


def test_what_depends_on_data_is_refused():
    assert refused(ByData()).code in ("GG0103", "GG0502")


@pytest.mark.parametrize(
    ("model", "code", "what"),
    [
        (HoldsComplex(), "GG0101", "turn is complex, and only what is computed may be"),
        (GivesComplex(), "GG0502", "result is complex"),
        (RaisesToComplex(), "GG0103", "no rule for exp.default of complex numbers"),
    ],
    ids=["weight", "result", "op"],
)
def test_complex_numbers_are_refused_but_in_between(model: nn.Module, code: str, what: str):
    error = refused(model)
    assert (error.code, error.what) == (code, what)


def test_complex_inputs_are_refused():
    with pytest.raises(GraphgenError, match="x is complex, and only what is computed may be"):
        read_exported(export(Magnitude(), torch.polar(torch.rand(9), torch.rand(9))))


def test_what_is_complex_in_between_is_read():
    x = torch.rand(9, 9)
    module = read_exported(export(InBetween(), x)).module
    (name,) = names(module, Role.INPUT)
    found = np.asarray(module.evaluate({name: x.numpy()})["result"])
    np.testing.assert_allclose(found, x.numpy(), rtol=1e-6)


def test_dropout_is_refused():
    error = refused(nn.Dropout(0.5).train())
    assert (error.code, error.help) == ("GG0502", "export model.eval(), which drops nothing")


def test_a_size_that_is_no_polynomial_is_refused():
    class Halves(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[: x.shape[0] // 2].contiguous() * 2

    error = refused(Halves(), dynamic_shapes={"x": {0: torch.export.Dim.AUTO}})
    assert (error.code, error.help) == ("GG0102", "export with this dimension static")


# ---- files ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, counter: Counter) -> Path:
    x, more = given()
    file = tmp_path_factory.mktemp("pt2") / "counter.pt2"
    torch.export.save(export(counter, x, kwargs=more), file)
    return file


def test_a_file_holds_the_module_and_its_weights(archive: Path, counter: Counter):
    module, values = open_with_values(Source("counter.pt2", archive.read_bytes()))
    assert names(module, Role.STATE) == ["total"]
    np.testing.assert_array_equal(values["inner.weight"], counter.inner.weight.detach())
    np.testing.assert_array_equal(values["total"], counter.total)
    assert open_module(archive).op_count() == module.op_count()


class Runs:
    """Unpickled, it writes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return (Path.touch, (self.file,))


def changed(archive: Path, part: str, change: Any) -> bytes:
    """The archive with another content in the member whose name ends so."""
    out = io.BytesIO()
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, change(data) if name.endswith(part) else data)
    return out.getvalue()


def opening(data: bytes) -> GraphgenError:
    with pytest.raises(GraphgenError) as caught:
        open_with_values(Source("theirs.pt2", data))
    return caught.value


def test_a_pickle_that_runs_code_is_not_run(archive: Path, tmp_path: Path):
    mark = tmp_path / "was-run"
    saved = io.BytesIO()
    torch.save(Runs(mark), saved)
    error = opening(changed(archive, "sample_inputs/model.pt", lambda _: saved.getvalue()))
    assert (error.code, error.where) == ("GG0604", "theirs.pt2")
    assert not mark.exists()
    pickled = changed(archive, "inner.x", bytes)
    out = io.BytesIO(pickled)
    with zipfile.ZipFile(out, "a") as more:
        more.writestr("counter/data/constants/opaque_obj_0", pickle.dumps(Runs(mark)))
    assert "is not plain data of an exported program" in opening(out.getvalue()).what
    assert not mark.exists()


def test_a_weight_that_is_pickled_is_not_read(archive: Path):
    def pickled(data: bytes) -> bytes:
        tree = json.loads(data)
        tree["config"]["scale"]["use_pickle"] = True
        return json.dumps(tree).encode()

    error = opening(changed(archive, "model_weights_config.json", pickled))
    assert (error.code, "names a tensor that is pickled" in error.what) == ("GG0604", True)


@pytest.mark.parametrize("text", ["__import__('os')", "s0.func(1)", "[1][0]", "lambda: 0"])
def test_a_size_that_is_code_is_not_evaluated(archive: Path, text: str):
    def evil(data: bytes) -> bytes:
        tree = json.loads(data)
        tree["range"] = {"expr_str": text}
        return json.dumps(tree).encode()

    error = opening(changed(archive, "models/model.json", evil))
    assert (error.code, "is not a formula" in error.what) == ("GG0604", True)


def test_a_damaged_file_is_told(archive: Path):
    data = archive.read_bytes()
    assert opening(data[: len(data) // 2]).code == "GG0201"
    assert opening(changed(archive, "models/model.json", lambda _: b"{}")).code == "GG0201"
