"""Models that the processes of one launch answer with one after the other: ``MODELS.json``.

Processes take seconds to start and to meet, a small model takes less.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.distributed.launch_plan import LaunchFlags, launch_plan
from graphgen.runtime.distributed.led_session import lead_of
from graphgen.runtime.distributed.process_group import current_group, launched
from graphgen.runtime.engine import EngineOptions, open_engine
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.progress import Silent
from graphgen.runtime.sampling import GREEDY, Sampling
from graphgen.runtime.sampling.sampling_flags import on_device_pass

# No two tokens come near a tie here, in any family: other processors round otherwise.
TEXTS = ["one", "cats", "no"]
NEW = 8
# Tokens of each text, or the code and text of the error that refuses the model.
Answers = list[list[int]] | str
DRAWN = [Sampling(do_sample=True, top_k=k, temperature=2.0, seed=3) for k in (1, 50, 20)]


@dataclass(frozen=True, slots=True)
class Ask:
    """A model and how it is divided.

    Attributes:
        model: folder of the checkpoint.
        tp, stages: ranks of a stage, and stages.
        drawn: tokens are drawn; the most probable ones otherwise.
    """

    model: str
    tp: int = 1
    stages: int = 1
    drawn: bool = False

    def answers(self) -> Answers:
        """Answer; in a launch process 0 has the tokens, and the others have none."""
        sampling = DRAWN if self.drawn else [GREEDY] * len(TEXTS)
        requested = {"dtype": "f32", "tp": self.tp, "pp_degree": self.stages}
        # As ``graphgen generate`` has it: several ranks choose the most probable tokens themselves.
        chosen = on_device_pass(sampling, None, self.tp > 1 and not self.drawn)
        options = EngineOptions(CompileConfig.of(**{**requested, "sampling": chosen}), max_len=64)
        try:
            engine, prompts = open_engine(
                self.model, options, lambda t: [t.encode(text) for text in TEXTS], NEW, Silent()
            )
        except GraphgenError as error:
            return f"{error.code} {error.what}"
        request = GenerationRequest(NEW, engine.tokenizer.eos_ids, sampling=sampling)

        def work() -> list[list[int]]:
            return [row.tokens for row in engine.generate(prompts, request).completions]

        group = current_group()
        return (lead_of(group, engine.session, work) if group else work()) or []


def answers_of_processes(folder: Path, processes: int, asks: Sequence[Ask]) -> list[Answers]:
    """Have new processes answer together.

    Args:
        folder: for files.
        processes: number of processes.
        asks: the models, one after the other.
    """
    file = folder / "models.json"
    file.write_text(json.dumps([asdict(ask) for ask in asks]))
    # Other work may keep a process from its core for long.
    flags = LaunchFlags(1, processes, 0, None, None, silence=60, start=120)
    plan = launch_plan(flags, os.environ)
    running: list[subprocess.Popen[bytes]] = []
    try:
        for index in plan.local:
            env = {name: value for name, value in os.environ.items() if not name.startswith("COV_")}
            words = [sys.executable, "-m", __spec__.name, str(file), str(folder / "answers.json")]
            log = (folder / f"log-{index}").open("wb")
            with log:
                process = subprocess.Popen(
                    words, env={**env, **plan.variables(index)}, stdout=log, stderr=log
                )
            running.append(process)
        statuses = [process.wait(timeout=600) for process in running]
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
    logs = [(folder / f"log-{index}").read_text(errors="replace")[-3000:] for index in plan.local]
    assert statuses == [0] * processes, "\n".join(logs)
    return json.loads((folder / "answers.json").read_text())


def _fail(error: GraphgenError) -> None:
    print(error, file=sys.stderr, flush=True)
    os._exit(1)


def _main(asks: str, answers: str) -> None:
    found: list[Answers] = []
    with launched(_fail) as group:
        assert group is not None
        for ask in json.loads(Path(asks).read_text()):
            print(ask, file=sys.stderr, flush=True)
            found.append(Ask(**ask).answers())
        if group.place.index == 0:
            Path(answers).write_text(json.dumps(found))
        group.finish()


if __name__ == "__main__":
    _main(*sys.argv[1:])
