"""A hub without a network, in the place of the package huggingface_hub."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

NAME = "acme/tiny-model"


@dataclass
class FakeFile:
    rfilename: str
    size: int | None


@dataclass
class FakeHub:
    """A hub of one repository, with the calls that huggingface_hub has."""

    repository: Path
    cache: Path
    failure: Exception | None = None
    name: str = NAME
    fetched: list[str] = field(default_factory=list)
    sha = "0123abcd"

    def HfApi(self) -> FakeHub:  # noqa: N802
        return self

    @property
    def siblings(self) -> list[FakeFile]:
        files = sorted(file for file in self.repository.rglob("*") if file.is_file())
        return [
            FakeFile(str(file.relative_to(self.repository)), file.stat().st_size) for file in files
        ]

    def model_info(self, repo_id: str, *, files_metadata: bool) -> FakeHub:
        if self.failure is not None:
            raise self.failure
        assert (repo_id, files_metadata) == (self.name, True)
        return self

    def hf_hub_download(
        self,
        repo_id: str,
        filename: str,
        *,
        revision: str | None = None,
        local_files_only: bool = False,
    ) -> str:
        target = self.cache / filename
        if not local_files_only:
            assert (repo_id, revision) == (self.name, self.sha)
            self.fetched.append(filename)
            target.write_bytes((self.repository / filename).read_bytes())
        elif not target.exists():
            raise FileNotFoundError(filename)
        return str(target)
