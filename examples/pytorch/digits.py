"""What is trained: a small vision transformer on the 1,797 handwritten digits that come with scikit-learn, sharded by
FSDP2. The order of samples does not depend on the number of workers."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard

WIDTH, DEPTH, HEADS = 64, 2, 4
BATCH = 48  # over all workers


class VisionTransformer(nn.Module):
    """For images of 8 x 8 pixels, in 16 patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, WIDTH, kernel_size=2, stride=2)
        self.positions = nn.Parameter(0.5 * torch.randn(16, WIDTH))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0, batch_first=True, norm_first=True)
            for _ in range(DEPTH))
        self.classes = nn.Linear(WIDTH, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            x = block(x)
        classes: Tensor = self.classes(x.mean(dim=1))
        return classes


def make_model() -> tuple[nn.Module, torch.optim.Optimizer]:
    """Makes the same model on any number of workers, each of which holds its shard."""
    torch.manual_seed(0)
    model = VisionTransformer()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return model, torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)


class Samples:
    """Batches of digits, in an order that depends on the seed. The position in this order is the number of samples that
    all workers together have seen: any number of workers can continue from there, each with its part of every batch."""

    def __init__(self, seed: int = 0) -> None:
        digits = load_digits()
        self.images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
        self.labels = torch.tensor(digits.target)
        self.seed = seed
        self.seen = 0

    def next(self) -> tuple[Tensor, Tensor]:
        """This worker's part of the next batch."""
        epoch, at = divmod(self.seen, len(self.labels) // BATCH * BATCH)
        order = torch.randperm(len(self.labels), generator=torch.Generator().manual_seed(self.seed + epoch))
        mine = order[at:at + BATCH].tensor_split(dist.get_world_size())[dist.get_rank()]
        self.seen += BATCH
        return self.images[mine], self.labels[mine]

    def state_dict(self) -> dict[str, int]:
        return {"seed": self.seed, "seen": self.seen}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.seed, self.seen = state["seed"], state["seen"]


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer, samples: Samples, loss: float) -> dict[str, Any]:
    """Everything that is needed to continue the training. An optimizer without moments gets them here, so that they
    can be loaded."""
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "samples": samples.state_dict(), "loss": loss}
