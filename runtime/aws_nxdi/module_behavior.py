"""Methods of ``torch.nn.Module`` on applications, as AWS's have them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

from graphgen.errors import GraphgenError

if TYPE_CHECKING:
    from torch.nn import Parameter

    from graphgen.runtime.aws_nxdi.state_dict import StateDict


class ModuleBehavior(ABC):
    """Methods of ``torch.nn.Module`` that programs call on an application.

    Attributes:
        training: always False: applications infer.
    """

    training = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call ``forward``, which a subclass has to implement (GG0904)."""
        forward = getattr(self, "forward", None)
        if forward is None:
            raise GraphgenError(
                "GG0904",
                f"{type(self).__name__} has no forward",
                help="implement it: it calls the sub-models in self.models",
            )
        return forward(*args, **kwargs)

    @abstractmethod
    def state_dict(self) -> StateDict:
        """The weights by name, under the names of the model; read from the checkpoint each time.

        Raises:
            GraphgenError: GG0601 if the checkpoint cannot be read.
        """

    def eval(self) -> Self:
        """The application itself, which always infers."""
        return self

    def train(self, mode: bool = True) -> Self:
        """The application itself for ``False`` (GG0904 for training)."""
        if mode:
            what = f"{type(self).__name__}: applications are not trained"
            raise GraphgenError("GG0904", what, help="train the model in PyTorch, and save it")
        return self

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Names and tensors of :meth:`state_dict`, as parameters without gradients."""
        # Only here: applications run without torch.
        import torch

        for name, value in self.state_dict().items():
            tensor = value if isinstance(value, torch.Tensor) else torch.as_tensor(value)
            yield name, torch.nn.Parameter(tensor, requires_grad=False)

    def parameters(self) -> Iterator[Parameter]:
        """The tensors of :meth:`named_parameters`."""
        for _, parameter in self.named_parameters():
            yield parameter
