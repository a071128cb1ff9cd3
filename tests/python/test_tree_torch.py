"""Values of a torch program that are not tensors, or are tensors that cannot be saved, compared with torch.save and
torch.load; one process.

DCP_EXAMPLES is the number of random states; DCP_SEED selects another beginning."""

import collections
import io
import itertools
import json
import os
import pathlib
import random
import re
import struct
import tempfile
import unittest
import warnings

import hypothesis
import numpy as np
import torch
from hypothesis import strategies
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, get_state_dict, set_state_dict
from torch.optim import lr_scheduler

import libdcp
import libdcp.hf
import trees
from libdcp import _words


EXAMPLES = int(os.environ.get("DCP_EXAMPLES", "60"))
SEED = int(os.environ.get("DCP_SEED", "1"))


def made(shape, numbers):
    dtype = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e5m2][numbers.integers(6)]
    whole = torch.from_numpy(numbers.integers(0, 2, shape)).to(dtype)
    return whole.T if whole.ndim == 2 and numbers.integers(2) else whole


def copied_by_torch(state):
    stream = io.BytesIO()
    torch.save(state, stream)
    stream.seek(0)
    return torch.load(stream, weights_only=False)


def states(tensor=made):
    """A strategy; states that differ only in the order of their keys are one state."""
    return strategies.randoms(use_true_random=False).map(lambda rng: trees.Maker(rng, tensor).state())


def settings(test):
    return hypothesis.seed(SEED)(hypothesis.settings(max_examples=EXAMPLES, deadline=None, database=None,
                                                     suppress_health_check=list(hypothesis.HealthCheck))(test))


class Part:
    """An object with a state dict."""

    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


class Test(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-tree-")
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name) / "steps"
        self.addCleanup(_words.registered.clear)

    def assert_same(self, a, b):
        self.assertEqual(trees.difference(a, b), "")

    @settings
    @hypothesis.given(strategies.randoms(use_true_random=False))
    def test_random_objects(self, rng):
        """Loaded into objects that lack some of what was stored, or have it with other types and shapes."""
        maker = trees.Maker(rng, made)
        saved = {name: maker.section() for name in ("a", "b")}
        for cls in trees.CLASSES:
            libdcp.register(cls)
        inner = {"a": Part(saved["a"]), "deep": {"b": Part(saved["b"])}, "w": torch.ones(2)}
        libdcp.save(self.dir, 1, inner, replace=True)
        expected = copied_by_torch(saved)
        for strict in (True, False):
            parts = Part(trees.thinned(trees.blank(saved["a"]), rng)), Part(trees.thinned(trees.blank(saved["b"]), rng))
            libdcp.load(self.dir, {"a": parts[0], "deep": {"b": parts[1]}, "w": torch.zeros(2)}, strict=strict)
            self.assert_same([part.state for part in parts], list(expected.values()))

    @settings
    @hypothesis.given(states())
    def test_random_states(self, saved):
        expected = copied_by_torch(saved)
        for cls in trees.CLASSES:
            libdcp.register(cls)
        libdcp.save(self.dir, 1, saved, replace=True)
        state = trees.blank(saved)
        libdcp.load(self.dir, state)
        self.assert_same(state, expected)
        self.assert_same(libdcp.read(self.dir), expected)

    def schedulers(self):
        """Returns torch's schedulers, made for the optimizer."""
        def with_optimizer(make):
            optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0, momentum=0.9)
            return optimizer, make(optimizer)
        ways = {
            "steps": lambda o, other: lr_scheduler.MultiStepLR(o, [2] if other else [2, 4, 4, 6], gamma=0.5),
            "plateau": lambda o, other: lr_scheduler.ReduceLROnPlateau(o, patience=9 if other else 1),
            "cycle": lambda o, other: lr_scheduler.OneCycleLR(o, 0.5 if other else 1.0, total_steps=20),
            "lambda": lambda o, other: lr_scheduler.LambdaLR(o, lambda step: 1 / (step + 1)),
            "sequence": lambda o, other: lr_scheduler.SequentialLR(o, [
                lr_scheduler.LinearLR(o), lr_scheduler.MultiStepLR(o, [3] if other else [1, 2])], [5 if other else 2]),
            "chain": lambda o, other: lr_scheduler.ChainedScheduler([lr_scheduler.ExponentialLR(o, 0.9),
                                                                      lr_scheduler.StepLR(o, 2 + other)], o),
            "cosine": lambda o, other: lr_scheduler.CosineAnnealingWarmRestarts(o, 3 + other),
        }
        for name, way in ways.items():
            yield name, lambda other, way=way: with_optimizer(lambda o: way(o, other))

    def test_schedulers(self):
        """As objects, and as their state dicts; the result is that of torch's own load_state_dict."""
        def rates(optimizer, scheduler, n=6):
            found = []
            for i in range(n):
                optimizer.step()
                scheduler.step(*([1.0] if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau) else []))
                found.append(optimizer.param_groups[0]["lr"])
            return found
        for name, make in self.schedulers():
            with self.subTest(name), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                optimizer, scheduler = make(False)
                rates(optimizer, scheduler, 3)
                libdcp.save(self.dir, 1, {"w": torch.ones(1), "scheduler": scheduler}, replace=True)
                stored = copied_by_torch(scheduler.state_dict())

                (expected_optimizer, expected), (loaded_optimizer, loaded) = make(True), make(True)
                expected.load_state_dict(copied_by_torch(stored))
                libdcp.load(self.dir, {"w": torch.zeros(1), "scheduler": loaded})
                self.assert_same(loaded.state_dict(), expected.state_dict())
                for fresh in (expected_optimizer, loaded_optimizer):
                    fresh.load_state_dict(optimizer.state_dict())
                self.assertEqual(rates(loaded_optimizer, loaded), rates(expected_optimizer, expected))

                self.assert_same(libdcp.read(self.dir)["scheduler"], stored)

    def test_a_load_of_the_weights_alone(self):
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        scheduler = lr_scheduler.StepLR(optimizer, 1)
        libdcp.save(self.dir, 1, {"model": model, "scheduler": scheduler, "epoch": 5})
        saved = copied_by_torch(model.state_dict())
        for _ in range(2):
            optimizer.step()
            scheduler.step()
        before = copied_by_torch(scheduler.state_dict())
        with torch.no_grad():
            model.weight.zero_()
        state = {"model": model, "scheduler": scheduler, "epoch": 7}
        libdcp.load(self.dir, state, only="/model/*")
        self.assert_same(dict(model.state_dict()), dict(saved))
        self.assert_same(scheduler.state_dict(), before)
        self.assertEqual((state["epoch"], optimizer.param_groups[0]["lr"]), (7, 0.1 * 0.1))

    def test_optimizers(self):
        """get_state_dict's result, for groups with different options; and that of torch's own state_dict, by
        numbers."""
        def made(seed):
            torch.manual_seed(seed)
            model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
            optimizer = torch.optim.AdamW([{"params": model[0].parameters(), "lr": 0.5}, {"params": model[1].parameters()}],
                                          betas=(0.5, 0.25))
            model(torch.ones(1, 3)).sum().backward()
            optimizer.step()
            return model, optimizer
        model, optimizer = made(1)
        weights, moments = get_state_dict(model, optimizer)
        raw = optimizer.state_dict()
        libdcp.save(self.dir, 1, {"model": weights, "optimizer": moments, "raw": raw})
        expected = copied_by_torch([weights, moments, raw])
        other_model, other = made(2)
        weights, moments = get_state_dict(other_model, other)
        state = {"model": weights, "optimizer": moments, "raw": other.state_dict()}
        libdcp.load(self.dir, state)
        self.assert_same([state["model"], state["optimizer"], state["raw"]], expected)
        set_state_dict(other_model, other, model_state_dict=weights, optim_state_dict=moments)
        self.assert_same(get_optimizer_state_dict(other_model, other), expected[1])
        self.assert_same(libdcp.read(self.dir)["optimizer"], expected[1])
        self.assert_same(libdcp.read(self.dir)["raw"], expected[2])

    def test_tensors_whose_storage_was_freed_or_shortened_are_refused(self):
        def left_with(elements, tensor):
            tensor.untyped_storage().resize_(elements * tensor.element_size())
            return tensor
        for tensor in (left_with(0, torch.ones(8)), left_with(0, torch.ones(8)[2:]), left_with(5, torch.ones(8)),
                       left_with(7, torch.ones(8)[2:]), left_with(6, torch.ones(2, 4).T)):
            for call in (lambda state: libdcp.save(self.dir, 1, state), libdcp.prove):
                with self.assertRaisesRegex(TypeError, "storage was freed or shortened"):
                    call({"model": {"w": tensor}})
        whole = left_with(6, torch.ones(8)[2:6])  # it has all of its elements
        libdcp.save(self.dir, 1, {"model": {"w": whole}})

    def test_a_declared_tensor_that_has_changed_is_not_loaded_into(self):
        """The load would write into its old memory, or in the order of its old shape."""
        changes = {"other memory": [lambda t: setattr(t, "data", t.data.clone())],
                   "another shape, type or strides": [lambda t: t.t_(), lambda t: t.resize_(3, 2), lambda t: setattr(
                       t, "data", t.data.view(torch.int32))]}
        with libdcp.Store(self.dir) as store:
            store.save(1, {"w": torch.ones(2, 3)})
            for said, change in ((said, change) for said, found in changes.items() for change in found):
                weight = torch.zeros(2, 3)
                declared = store.declare({"w": weight})
                store.load(declared)
                self.assertEqual(weight.sum(), 6)
                change(weight.zero_())
                with self.assertRaisesRegex(ValueError, f"^state\\['w'\\] has {said} than when the state was declared"):
                    store.load(declared)
                self.assertEqual(weight.count_nonzero(), 0)

    def test_new_tensors_do_not_follow_the_default_device(self):
        saved = {"list": [torch.ones(3)], "each": libdcp.PerRank(torch.ones(2)), "part": Part({"t": torch.ones(4)})}
        libdcp.save(self.dir, 1, saved)
        with torch.device("meta"):
            loaded = {"list": [], "each": libdcp.PerRank(None), "part": Part({})}
            libdcp.load(self.dir, loaded)
            found = libdcp.read(self.dir)
        for tensor in (loaded["list"][0], loaded["each"].value, loaded["part"].state["t"], found["list"][0]):
            self.assertEqual((str(tensor.device), bool((tensor == 1).all())), ("cpu", True))

    def test_renames_that_match_nothing_are_refused(self):
        libdcp.save(self.dir, 1, {"model": {"w": torch.ones(3)}, "ema": {"w": torch.full((3,), 2.)}})
        state = {"model": {"w": torch.zeros(3)}}
        for rename, said in (({"model/*": "/ema/*"}, 'paths begin with "/"'), ({"/model/*": "ema/*"}, 'paths begin with "/"'),
                             ({"/ema/*": "/model/*"}, "nothing of the state is named /ema/")):
            with self.assertRaisesRegex(ValueError, said):
                libdcp.load(self.dir, state, rename=rename, only="/model/*")
        libdcp.load(self.dir, state, rename={"/model/*": "/ema/*"}, only="/model/*")
        self.assertEqual(state["model"]["w"].tolist(), [2, 2, 2])

    def test_a_backward_pass_across_a_load_is_refused(self):
        """As after any other write to a tensor that the pass requires; a tensor that is not loaded can still be
        used."""
        loaded, other = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        libdcp.save(self.dir, 1, {"model": {"loaded": loaded, "other": other}})
        for only, is_refused in (("/model/loaded", True), ("/model/other", False), (None, True)):
            result = (loaded * loaded).sum()
            libdcp.load(self.dir, {"model": {"loaded": loaded, "other": other}}, only=only)
            if is_refused:
                with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                    result.backward()
            else:
                result.backward()
        with torch.inference_mode():
            frozen = torch.zeros(3)
        libdcp.save(self.dir, 2, {"model": {"frozen": torch.ones(3)}})
        libdcp.load(self.dir, {"model": {"frozen": frozen}})
        self.assertEqual(frozen.tolist(), [1, 1, 1])

    def test_random_number_generators(self):
        torch_generator, numpy_ones = torch.Generator().manual_seed(3), [
            np.random.Generator(kind(5)) for kind in (np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64)]

        def state():
            return {"torch": torch.get_rng_state(), "own": torch_generator.get_state(), "python": random.getstate(),
                    "numpy": np.random.get_state(), **{f"n{i}": n.bit_generator.state for i, n in enumerate(numpy_ones)}}

        def numbers():
            return [torch.rand(1).item(), torch.rand(1, generator=torch_generator).item(), random.random(), np.random.rand(),
                    *(n.random() for n in numpy_ones)]
        random.gauss(0, 1)
        libdcp.save(self.dir, 1, {"rng": state(), **state()})
        then = numbers()
        numbers()
        loaded = {"rng": state(), **state()}
        libdcp.load(self.dir, loaded)
        for found in (loaded, loaded["rng"]):
            torch.set_rng_state(found["torch"])
            torch_generator.set_state(found["own"])
            random.setstate(found["python"])
            np.random.set_state(found["numpy"])
            for i, n in enumerate(numpy_ones):
                n.bit_generator.state = found[f"n{i}"]
            self.assertEqual(numbers(), then)

    def test_shuffled_loaders(self):
        try:
            from torchdata.stateful_dataloader import StatefulDataLoader
        except ImportError:
            self.skipTest("no torchdata")
        for workers, as_object in itertools.product((0, 2), (False, True)):
            with self.subTest(workers=workers, as_object=as_object), warnings.catch_warnings():
                warnings.simplefilter("ignore")

                def loader():
                    return StatefulDataLoader(list(range(64)), batch_size=4, shuffle=True, num_workers=workers)

                def state(loader):
                    return {"w": torch.ones(1), **({"loader": loader} if as_object else {"d": {"l": libdcp.Loader(loader)}})}
                first, second = loader(), loader()
                batches = iter(first)
                for _ in range(3):
                    next(batches)
                libdcp.save(self.dir, 1, state(first), replace=True)
                rest = [batch.tolist() for batch in batches]
                libdcp.load(self.dir, state(second))
                self.assertEqual([batch.tolist() for batch in second], rest)

    def test_tensors_without_memory_of_their_own(self):
        """8-bit moments, lazy and nested tensors and others are refused, with key and class."""
        class Codes(torch.Tensor):
            @staticmethod
            def __new__(cls, codes):
                return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)

            def __init__(self, codes):
                self.codes = codes

            def __tensor_flatten__(self):
                return ["codes"], []

            @classmethod
            def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
                raise NotImplementedError(str(function))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
            jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
        from torch._subclasses import FakeTensorMode
        fake = FakeTensorMode().from_tensor(torch.ones(2))
        for value in (Codes(torch.ones(4, dtype=torch.uint8)), torch.nn.LazyLinear(2).weight, nested, jagged, fake,
                      torch.ones(2).to_sparse(), torch.ones(2, 2).to_sparse_csr()):
            for state, name in (({"optimizer": {"state": {"p": {"exp_avg": value}}, "param_groups": []}},
                                 "state['optimizer']['state']['p']['exp_avg']: "), ({"a": [value]}, "state['a'][0]: ")):
                with self.subTest(type(value).__name__), self.assertRaises(TypeError) as caught:
                    libdcp.save(self.dir, 1, state)
                self.assertTrue(str(caught.exception).startswith(name), caught.exception)
                self.assertIn(type(value).__name__, str(caught.exception))

    def test_a_module_whose_buffers_are_made_anew(self):
        """A declared state gets its state dict at each save."""
        class Averages(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight, self.n = torch.nn.Parameter(torch.zeros(2)), 0

            def get_extra_state(self):
                return {"n": self.n, "mean": torch.full((3,), float(self.n)), "kind": (1, "a")}

            def set_extra_state(self, state):
                self.extra = state
        module = Averages()
        with libdcp.Store(self.dir) as store:
            declared = store.declare({"averages": module})
            for module.n in (1, 2, 3):
                store.save_async(module.n, declared).wait()
        for n in (1, 2, 3):
            loaded = Averages()
            libdcp.load(self.dir / f"step-{n:08}", {"averages": loaded})
            self.assert_same(loaded.extra, {"n": n, "mean": torch.full((3,), float(n)), "kind": (1, "a")})

    def test_objects_whose_tensors_are_made_later(self):
        """An optimizer without moments yet, an average that has not begun, a scaler, a module that has not run,
        and modules that keep unknown values: each one is as torch.load leaves it."""
        class Optimizing:
            """An optimizer wrapped for a checkpoint, as programs do it."""
            def __init__(self, model):
                self.inner = torch.optim.Adam(model.parameters(), lr=0.5)

            def state_dict(self):
                return self.inner.state_dict()

            def load_state_dict(self, state):
                self.inner.load_state_dict(state)

        class Keeping(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("mean", None)

            def _load_from_state_dict(self, state, prefix, *arguments):
                if f"{prefix}mean" in state and self.mean is None:
                    self.mean = torch.zeros_like(state[f"{prefix}mean"])
                super()._load_from_state_dict(state, prefix, *arguments)

        class Scaling:
            def __init__(self):
                self.scale = None

            def state_dict(self):
                return {"scale": self.scale, "kind": (1, "a")}

            def load_state_dict(self, state):
                self.scale = state["scale"]

        def made():
            model = torch.nn.Sequential(torch.nn.LazyLinear(3), torch.nn.Linear(3, 2))
            return model, Keeping(), Scaling()
        model, keeping, scaling = made()
        model(torch.ones(1, 4)).sum().backward()
        optimizing = Optimizing(model)
        optimizing.inner.step()
        keeping.mean, scaling.scale = torch.full((4,), 3.0), torch.tensor(7.0)
        saved = {"model": model, "optimizer": optimizing, "extra": {"keeping": keeping, "scaling": scaling}}
        libdcp.save(self.dir, 1, saved)
        expected = copied_by_torch([model.state_dict(), optimizing.state_dict(), keeping.state_dict(), scaling.state_dict()])
        for only in (None, "*"):
            fresh, keeping, scaling = made()
            optimizing = Optimizing(model)
            libdcp.load(self.dir, {"model": fresh, "optimizer": optimizing, "extra": {"keeping": keeping, "scaling": scaling}}, only=only)
            self.assert_same([dict(fresh.state_dict()), optimizing.state_dict(), dict(keeping.state_dict()), scaling.state_dict()],
                             [dict(expected[0]), expected[1], dict(expected[2]), expected[3]])

    def test_modules_that_refuse_what_they_do_not_know(self):
        """Before anything is changed, as torch's own modules do it."""
        libdcp.save(self.dir, 1, {"model": {"weight": torch.ones(2, 2), "bias": torch.ones(2), "new": torch.ones(1)}})
        model = torch.nn.Linear(2, 2)
        before = copied_by_torch(dict(model.state_dict()))
        with self.assertRaisesRegex(libdcp.Error, "tensor /model/new is in the checkpoint") as caught:
            libdcp.load(self.dir, {"model": model})
        self.assertEqual(caught.exception.status, libdcp.Status.MISMATCH)
        self.assert_same(dict(model.state_dict()), before)
        self.assertEqual(libdcp.load(self.dir, {"model": model}, strict=False).unexpected, ["/model/new"])
        self.assertEqual(model.bias.tolist(), [1, 1])
        with self.assertRaisesRegex(libdcp.Error, "tensor /model/bias is F32"):
            libdcp.load(self.dir, {"model": torch.nn.Linear(2, 3)}, strict=False)

    def test_read_only_tensors(self):
        """Torch does not know that their memory is read-only."""
        file = self.dir.with_name("memory")
        np.zeros(3000).tofile(file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's warning about such memory
            fixed = torch.from_numpy(np.memmap(file, mode="r", dtype=np.float64))
        private = torch.from_numpy(np.memmap(file, mode="c", dtype=np.float64))
        module = torch.nn.Linear(50, 60, bias=False, dtype=torch.float64)
        module.weight.data = fixed.view(60, 50)
        ones = torch.ones(3000).double()

        def own(value, inner):
            return {"value": libdcp.PerRank(value), "inner": libdcp.PerRank({"a": inner, "k": 5})}
        libdcp.save(self.dir, 1, {"w": ones, "t": ones.view(50, 60), "m": {"weight": ones.view(60, 50)},
                                  "own": own(ones, ones)})
        for state, name in (({"w": fixed}, "['w']"), ({"w": private, "t": fixed.view(60, 50).t()}, "['t']"),
                            ({"m": module}, "['m']['weight']"), ({"own": own(fixed, None)}, "['own']['value']")):
            with self.subTest(name):
                with self.assertRaisesRegex(ValueError, f"^state{re.escape(name)}: a read-only array, which can't be"):
                    libdcp.load(self.dir, state, strict=False)
                self.assertFalse(private.any())
        libdcp.load(self.dir, {"w": private, "m": module}, only="/model/w")
        replaced = own(torch.zeros(3000).double(), fixed)
        libdcp.load(self.dir, {"own": replaced}, strict=False)
        self.assert_same([private, replaced["inner"].value, replaced["value"].value],
                         [ones, {"a": ones, "k": 5}, ones])
        self.assertFalse(fixed.any())

        header = json.dumps({"w": {"dtype": "F64", "shape": [3000], "data_offsets": [0, 24000]}}).encode()
        folder = self.dir.with_name("hf")
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + ones.numpy().tobytes())
        with self.assertRaisesRegex(ValueError, r"^state\['w'\]: a read-only array"):
            libdcp.hf.load(folder, {"w": fixed})

    def test_words_of_torch(self):
        saved = {"a": {"b": [torch.float32, torch.Size([2, 3]), torch.device("cpu")], "version": str(torch.__version__)},
                 "c": collections.OrderedDict(x=1)}
        libdcp.save(self.dir, 1, saved)
        self.assert_same(libdcp.read(self.dir), copied_by_torch(saved))


if __name__ == "__main__":
    unittest.main()
