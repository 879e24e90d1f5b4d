"""Programs of an artifact that call kernels, on machines with and without these."""

from __future__ import annotations

import pytest

from graphgen.ir import Module
from graphgen.lowering.cpu_kernels.kernel_library import HANDLERS, KernelLibrary, kernel_library
from graphgen.runtime import program_kernels
from graphgen.runtime.artifact import open_artifact
from graphgen.runtime.program_kernels import kernels_called, missing_kernels, plans_products
from graphgen.runtime.session import session
from tests.runtime.artifact.test_artifact_folder import answer, made, start

# Programs that give logits choose no token, and these have no adapters.
CALLED = sorted(HANDLERS.keys() - {"graphgen.adapted_linear", "graphgen.top_k"})

needs_kernels = pytest.mark.skipif(bool(kernel_library().missing), reason="no kernels are built")


@pytest.fixture
def no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = KernelLibrary(frozenset(), "", "they are not built: make them", "")
    monkeypatch.setattr(program_kernels, "kernel_library", lambda: lacking)


@needs_kernels
def test_where_the_kernels_are_there_is_nothing_to_say_and_nothing_to_plan():
    module = open_artifact(made()[0] / "artifact").model.module
    assert kernels_called(module) == CALLED
    assert missing_kernels(module) == ""
    assert not any(plans_products(module, program.name) for program in module.programs())


@needs_kernels
@pytest.mark.usefixtures("no_kernels")
def test_missing_kernels_are_named_with_what_to_do():
    engine = start(made()[0] / "artifact", None)
    module = engine.model.module
    assert engine.reports[:-1] == engine.model.reports
    assert engine.reports[-1].name == "kernels"
    (remark,) = engine.reports[-1].remarks
    assert remark == (
        f"these programs were compiled for {' and '.join(CALLED)}, and there are no "
        "kernels here, they are not built: make them: weights are unpacked at every call, with the "
        "same answers but many times slower; build the kernels, or compile the model again on this "
        "machine"
    )
    assert all(plans_products(module, program.name) for program in module.programs())


@needs_kernels
def test_programs_of_kernels_are_not_launched_twice_at_their_first_step():
    engine = start(made()[0] / "artifact", None)
    assert answer(engine) == made()[1]
    assert engine.programs.reports
    assert engine.programs.warm_ups == {}
    engine.session.warm_up()
    assert engine.programs.warm_ups == {}
    fresh = start(made()[0] / "artifact", None)
    fresh.session.warm_up()
    assert {*fresh.programs.warm_ups} == {"prefill.b2.s64", "decode.b2.c64"}


@needs_kernels
def test_a_program_is_looked_through_for_products_once(monkeypatch: pytest.MonkeyPatch):
    # Looking through all ops took a twentieth of each step.
    folder, expected = made()
    asked: list[str] = []

    def plans(module: Module, program: str) -> bool:
        asked.append(program)
        return plans_products(module, program)

    monkeypatch.setattr(session, "plans_products", plans)
    assert answer(start(folder / "artifact", None)) == expected
    assert asked == ["prefill.b2.s64", "decode.b2.c64"]
