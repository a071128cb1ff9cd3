"""Trains with Lightning, alone or on several ranks, for test_lightning.py: run(RANKS, SCRATCH, NAME, OPTIONS).

The options are strategy: "ddp", "fsdp" or "parallel" (FSDP2); resume: fit(ckpt_path="last"); kill_at: the last rank kills
itself as that update begins; kill_in_save: a rank kills itself in a save after that update; test: the best checkpoint is
tested at the end; io: options of libdcp.lightning.CheckpointIO. Checkpoints go to SCRATCH/NAME, losses to
SCRATCH/NAME.losses.
"""

import logging
import multiprocessing
import os
import signal
import socket
import sys
import traceback
import warnings

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

from lightning import fabric, pytorch

import libdcp.lightning

SAMPLES, WIDTH, BATCH, EPOCHS = 32, 16, 8, 5
EVERY = SAMPLES // BATCH  # updates of an epoch
INPUTS = torch.randn(SAMPLES, WIDTH, generator=torch.Generator().manual_seed(1))
LIMIT_S = 240


def make_layers():
    return nn.Sequential(nn.Linear(WIDTH, 24), nn.ReLU(), nn.Linear(24, WIDTH))


def shard(layers, mesh):
    fully_shard(layers[0], mesh=mesh)
    return fully_shard(layers, mesh=mesh)


class CpuFSDP(pytorch.strategies.FSDPStrategy):
    """Lightning, like FSDP1 itself, uses no CPU unless that is requested by name."""

    def _setup_model(self, model):
        if any(isinstance(module, FullyShardedDataParallel) for module in model.modules()):  # by an earlier fit
            return model
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"), **self.kwargs)


def make_strategy(name, world):
    return {"ddp": lambda: pytorch.strategies.DDPStrategy(), "fsdp": lambda: CpuFSDP(auto_wrap_policy={nn.Linear}),
            "parallel": lambda: pytorch.strategies.ModelParallelStrategy(world, 1)}[name]()


class Batches(pytorch.LightningDataModule):
    """In an order that depends on the epoch alone. Any number of ranks has the same samples in each update."""

    def __init__(self, world):
        super().__init__()
        self.world = world

    def train_dataloader(self):
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(self.trainer.current_epoch))
        data = torch.utils.data.TensorDataset(INPUTS[order], INPUTS[order].cumsum(1).tanh())
        sampler = torch.utils.data.DistributedSampler(data, self.world, self.trainer.global_rank, shuffle=False)
        return torch.utils.data.DataLoader(data, BATCH // self.world, sampler=sampler)


class Model(pytorch.LightningModule):
    def __init__(self, width=WIDTH, options=None, activation=nn.ReLU):
        super().__init__()
        self.save_hyperparameters()
        self.layers, self.sharded, self.options = make_layers(), False, options or {}
        self.losses = None

    def configure_model(self):
        strategy = self._trainer and self.trainer.strategy
        if isinstance(strategy, pytorch.strategies.ModelParallelStrategy) and not self.sharded:
            shard(self.layers, self.device_mesh["data_parallel"])
            self.sharded = True

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)}

    def on_train_batch_start(self, batch, i):
        if self.global_rank == self.trainer.world_size - 1:
            self.kill_after(self.options.get("kill_at", 0) - 1)

    def kill_after(self, step):
        if self.global_step == step:
            os.kill(os.getpid(), signal.SIGKILL)

    def training_step(self, batch, i):
        loss = nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        mean = self.trainer.strategy.reduce(loss.detach().clone(), reduce_op="mean")
        if self.losses and self.trainer.is_global_zero:
            with open(self.losses, "a") as out:
                print(self.global_step + 1, repr(float(mean)), file=out)
        self.log("loss", mean)
        return loss


    def test_step(self, batch, i):
        self.layers(batch)


def make_trainer(folder, strategy="auto", world=1, io=None, epochs=EPOCHS, **checkpoint):
    checkpoint = {"save_last": True, "monitor": "loss", "save_top_k": 2, "save_on_train_epoch_end": True, **checkpoint}
    return pytorch.Trainer(
        default_root_dir=folder.parent, accelerator="cpu", devices=world, strategy=strategy, logger=False, max_epochs=epochs,
        enable_progress_bar=False, enable_model_summary=False, reload_dataloaders_every_n_epochs=1,
        use_distributed_sampler=False, plugins=[libdcp.lightning.CheckpointIO(**(io or {}))],
        callbacks=[pytorch.callbacks.ModelCheckpoint(folder, **checkpoint)])


def quiet():
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    torch.set_num_threads(1)


def train(scratch, name, options):
    world = int(os.environ.get("WORLD_SIZE", 1))
    quiet()
    torch.manual_seed(3)
    model = Model(options=options)
    model.losses = scratch / f"{name}.losses"
    strategy = make_strategy(options["strategy"], world) if "strategy" in options else "auto"
    io = dict(options.get("io", {}))
    if "kill_in_save" in options:
        io["progress"] = lambda done, total: model.kill_after(options["kill_in_save"])
    trainer = make_trainer(scratch / name, strategy, world, io)
    trainer.fit(model, Batches(world), ckpt_path="last" if options.get("resume") else None)
    if options.get("test"):
        trainer.test(model, torch.utils.data.DataLoader(INPUTS), ckpt_path="best", verbose=False)
    return trainer


def _fabric(options):
    """Fabric, a module and its optimizer on this rank."""
    world, name = int(os.environ["WORLD_SIZE"]), options.get("strategy", "auto")
    quiet()
    parallel = fabric.strategies.ModelParallelStrategy(lambda layers, mesh: shard(layers, mesh["data_parallel"]), world, 1)
    made = fabric.Fabric(accelerator="cpu", strategy=parallel if name == "parallel" else name, devices=world,
                         plugins=[libdcp.lightning.CheckpointIO()])
    made.launch()
    layers = made.setup_module(make_layers())
    return made, layers, made.setup_optimizers(torch.optim.AdamW(layers.parameters(), lr=1e-2))


def _update(made, layers, optimizer):
    loss = layers(INPUTS).square().mean()
    made.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    return float(loss)


def fabric_save(scratch, name, options):
    torch.manual_seed(3)
    made, layers, optimizer = _fabric(options)
    for _ in range(3):
        _update(made, layers, optimizer)
    made.save(scratch / name, {"model": layers, "optimizer": optimizer, "step": 3, "names": ("a", "b")})
    _update(made, layers, optimizer)
    if made.is_global_zero:
        (scratch / f"{name}.loss").write_text(repr(_update(made, layers, optimizer)))
    else:
        _update(made, layers, optimizer)


def fabric_load(scratch, name, options):
    torch.manual_seed(4)
    made, layers, optimizer = _fabric(options)
    try:
        made.load(scratch / name, {"model": layers, "other": 1})
        raise AssertionError("a key that the checkpoint lacks was accepted")
    except KeyError as e:
        assert "other" in str(e), e
    state = {"model": layers, "optimizer": optimizer, "step": 0}
    rest = made.load(scratch / name, state)
    assert (state["step"], rest) == (3, {"names": ("a", "b")}), (state, rest)
    _update(made, layers, optimizer)
    loss = _update(made, layers, optimizer)
    wanted = float((scratch / f"{name}.loss").read_text())
    assert abs(loss - wanted) < 1e-6, (loss, wanted)


def _rank(rank, world, port, log, program, arguments):
    os.environ.update(LOCAL_RANK=str(rank), RANK=str(rank), NODE_RANK="0", WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    try:
        globals()[program](*arguments)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def run(world, scratch, name, options, program="train"):
    """Runs a function of this file on so many ranks, which are forked, since the import of lightning takes seconds. Returns their exit codes
    and their output."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = scratch / f"{name}.log"
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=_rank, args=(rank, world, port, log, program, (scratch, name, options))) for rank in range(world)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(LIMIT_S)
        if rank.is_alive():
            rank.kill()
            rank.join()
    return [rank.exitcode for rank in ranks], log.read_text()
