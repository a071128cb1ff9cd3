"""libdcp.convert: checkpoints that DeepSpeed has written (data/deepspeed.tar.xz, made by deepspeed_files.py) become steps
with what DeepSpeed itself reads from them, bit by bit."""

import collections
import contextlib
import importlib.abc
import importlib.machinery
import io
import pathlib
import random
import shutil
import sys
import tarfile
import types
import unittest

import torch

import libdcp
from libdcp import convert

from test_convert import Base
from torchrun import torchrun

HERE = pathlib.Path(__file__).parent
SHAPES = {"a.weight": (5, 7), "a.bias": (5,), "norm.weight": (5,), "norm.bias": (5,), "b.weight": (3, 5), "b.bias": (3,),
          "tied.bias": (3,)}


class DeepSpeedsClasses(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Inside it, classes of DeepSpeed exist, so that torch.load gives this test what the files have."""

    def __enter__(self):
        sys.meta_path.insert(0, self)

    def __exit__(self, *raised):
        sys.meta_path.remove(self)
        for name in [name for name in sys.modules if name.split(".")[0] == "deepspeed"]:
            del sys.modules[name]

    def find_spec(self, name, path, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] == "deepspeed" else None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)

        def made(name):
            if name.startswith("__"):
                raise AttributeError(name)
            setattr(module, name, type(name, (), {"__module__": spec.name, "__init__": lambda made, *given: None}))
            return getattr(module, name)
        module.__getattr__ = made
        return module

    def exec_module(self, module):
        pass


class Test(Base):
    def setUp(self):
        super().setUp()
        with tarfile.open(HERE / "data" / "deepspeed.tar.xz") as files:
            files.extractall(self.dir, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))

    def step(self, name):
        self.convert(self.dir / name, self.dir / "steps" / name)
        self.assertEqual(libdcp.steps(self.dir / "steps" / name), [3])
        return libdcp.read(self.dir / "steps" / name)

    def same(self, found, expected):
        self.assertEqual(sorted(found), sorted(expected))
        for name, array in expected.items():
            self.assertEqual(torch.as_tensor(found[name]).shape, array.shape, name)
            self.assertTrue(torch.equal(torch.as_tensor(found[name]), array), name)

    def test_weights(self):
        """The masters are those of DeepSpeed's zero_to_fp32."""
        for name, section in (("zero1", "master"), ("zero2_bf16", "master"), ("zero3_bf16", "model")):
            state = self.step(name)
            expected = torch.load(self.dir / f"{name}.pt")
            masters = {key: torch.as_tensor(array) for key, array in state[section].items() if key in SHAPES}
            self.same(masters, {key: expected[key] for key in SHAPES})
            saved = next((self.dir / name / "global_step3").glob("*mp_rank_00_model_states.pt"))
            module = torch.load(saved, weights_only=False)["module"]
            self.assertEqual(sorted(state["model"]), sorted(module))
            for key in module if section == "master" else ("seen",):
                with libdcp.Checkpoint(self.dir / "steps" / name) as step:
                    self.assertEqual(step[f"/model/{key}"].tobytes(), module[key].contiguous().view(torch.uint8).numpy().tobytes())
            if section == "model":
                self.same({"tied.weight": state["model"]["tied.weight"]}, {"tied.weight": expected["b.weight"]})
            self.assertEqual(state["deepspeed"], {"global_steps": 3, "global_samples": 12, "skipped_steps": 0})
            self.assertEqual(state["scheduler"]["last_epoch"], 3)
            self.assertEqual([(group["lr"], group["weight_decay"], group["params"]) for group in state["optimizer"]["param_groups"]],
                             [(0.125, 0.5, ["a.weight", "b.weight"]),
                              (0.125, 0., ["a.bias", "norm.weight", "norm.bias", "b.bias", "tied.bias"])])

    def test_moments(self):
        """They are those of DeepSpeed's ds_to_universal, whose folders are converted, too."""
        for name in ("zero1", "zero3_bf16"):
            state, universal = self.step(name), self.step(f"{name}_universal")
            zero = self.dir / f"{name}_universal" / "global_step3_universal" / "zero"
            self.assertEqual(universal["optimizer"]["param_groups"], state["optimizer"]["param_groups"])
            for key, shape in SHAPES.items():
                for moment in ("exp_avg", "exp_avg_sq"):
                    expected = torch.load(zero / key / f"{moment}.pt", weights_only=False)
                    expected = expected["param"] if isinstance(expected, dict) else expected
                    for found in (state, universal):
                        found = torch.as_tensor(found["optimizer"]["state"][key][moment])
                        self.assertTrue(torch.equal(found, expected.reshape(shape)), (name, key, moment))
                self.assertEqual(float(state["optimizer"]["state"][key]["step"]), 3)
                self.same({key: universal["model"][key]},
                          {key: torch.as_tensor(state["master" if name == "zero1" else "model"][key])})

    def changed(self, name, folder, change):
        """A copy of a folder, in which a function changes the members of each file whose name has this in it; DeepSpeed's
        own objects in it are left as they are."""
        shutil.copytree(self.dir / name, self.dir / folder)
        for part, function in change.items():
            for path in (self.dir / folder / "global_step3").glob(f"*{part}*"):
                saved = torch.load(path, weights_only=False)
                function(saved)
                torch.save(saved, path)
        return self.step(folder)

    def test_no_frozen_parameters(self):
        """DeepSpeed writes empty mappings for them."""
        def remove(saved):
            saved.update(frozen_param_shapes=collections.OrderedDict(), frozen_param_fragments=collections.OrderedDict())
            saved["module"].pop("frozen", None)
        found, whole = self.changed("zero3_bf16", "unfrozen", {"model_states": remove}), self.step("zero3_bf16")
        whole["model"].pop("frozen")
        self.same(found["model"], {name: torch.as_tensor(value) for name, value in whole["model"].items()})

    def test_numbers_of_steps(self):
        """DeepSpeed's own optimizers count in an integer, which becomes what torch's optimizers have."""
        def count(saved):
            states = saved["optimizer_state_dict"]
            for state in states.get("base_optimizer_state", states.get("optimizer_state_dict"))["state"].values():
                state["step"] = 5
        with DeepSpeedsClasses():
            for name in ("zero1", "zero3_bf16"):
                found = self.changed(name, f"{name}_counted", {"optim_states": count})
                for key in SHAPES:
                    step = found["optimizer"]["state"][key]["step"]
                    self.assertEqual((float(step), torch.as_tensor(step).dtype), (5, torch.float32))

    def test_groups_in_parts(self):
        """ZeRO 3 makes several flat arrays of a large group."""
        shapes = torch.load(next((self.dir / "zero3_bf16/global_step3").glob("*rank_0*model_states.pt")),
                            weights_only=False)["param_shapes"]

        def divide_shapes(saved):
            parts = [list(group.items()) for group in saved["param_shapes"]]
            saved["param_shapes"] = [collections.OrderedDict(part) for items in parts for part in (items[:1], items[1:])]

        def divide(saved):
            states = saved["optimizer_state_dict"]
            of, flat, state, groups = states["optimizer_state_dict"], [], {}, []
            for i, (group, whole) in enumerate(zip(shapes, states["fp32_flat_groups"])):
                first = -(-next(iter(group.values())).numel() // 2)
                cuts = [first, whole.numel() - first]
                groups.append({**of["param_groups"][i], "params": [len(flat), len(flat) + 1]})
                for j, part in enumerate(whole.split(cuts)):
                    state[len(flat)] = {name: value.split(cuts)[j].clone() if value.ndim else value
                                        for name, value in of["state"][i].items()}
                    flat.append(part.clone())
            states.update(fp32_flat_groups=flat, optimizer_state_dict={"state": state, "param_groups": groups})
        with DeepSpeedsClasses():
            found = self.changed("zero3_bf16", "parts", {"model_states": divide_shapes, "optim_states": divide})
        whole = self.step("zero3_bf16")
        self.assertEqual(found["optimizer"]["param_groups"], whole["optimizer"]["param_groups"])
        self.same(found["model"], {name: torch.as_tensor(value) for name, value in whole["model"].items()})
        for key in SHAPES:
            self.same(found["optimizer"]["state"][key],
                      {name: torch.as_tensor(value) for name, value in whole["optimizer"]["state"][key].items()})

    def test_universal_has_everything(self):
        """Frozen and tied parameters and buffers, too, which have no folders of their own after ZeRO 3."""
        whole = self.step("zero3_bf16")["model"]
        self.same(self.step("zero3_bf16_universal")["model"], {name: torch.as_tensor(value) for name, value in whole.items()})

    def test_loaded(self):
        """Into a model in one process, and with FSDP2 on two ranks."""
        for name, ranks in (("zero1", 1), ("zero3_bf16", 2)):
            self.convert(self.dir / name, self.dir / "steps" / name)
            done = torchrun(ranks, HERE / "deepspeed_ranks.py", self.dir / "steps" / name, self.dir / f"{name}.pt")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_without_zero(self):
        """There, moments have numbers, as in the optimizer's own state."""
        state = self.step("zero0")
        saved = torch.load(self.dir / "zero0" / "global_step3" / "mp_rank_00_model_states.pt", weights_only=False)
        self.same(state["model"], saved["module"])
        self.same(state["optimizer"]["state"][0], saved["optimizer"]["state"][0])

    def test_flipped(self):
        """Whatever is changed, the program ends with a valid status."""
        random.seed(1)
        for name in ("zero1", "zero3_bf16"):
            for path in sorted((self.dir / name / "global_step3").glob("*rank_0*.pt")):
                whole = path.read_bytes()
                for _ in range(60):
                    forged = bytearray(whole)
                    forged[random.randrange(len(forged))] = random.randrange(256)
                    path.write_bytes(forged)
                    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
                        self.assertIn(convert.main([str(self.dir / name), str(self.dir / "flipped")]), (0, 1))
                    shutil.rmtree(self.dir / "flipped", ignore_errors=True)
                path.write_bytes(whole)

    def test_damaged(self):
        for name, lost, said in (("zero1", "zero_pp_rank_1_mp_rank_00_optim_states.pt", "and there are files of 1 ranks"),
                                 ("zero1", "zero_pp_rank_0_mp_rank_00_optim_states.pt", "a rank's file is missing"),
                                 ("zero1", "mp_rank_00_model_states.pt", "mp_rank_00_model_states.pt is missing")):
            folder = self.dir / "damaged"
            shutil.copytree(self.dir / name, folder)
            (folder / "global_step3" / lost).unlink()
            self.assertIn(said, self.convert(folder, self.dir / "none", expect=1))
            shutil.rmtree(folder)
        folder = self.dir / "zero1" / "global_step3"
        whole = (folder / "zero_pp_rank_1_mp_rank_00_optim_states.pt").read_bytes()
        for n in range(4, len(whole), 301):
            (folder / "zero_pp_rank_1_mp_rank_00_optim_states.pt").write_bytes(whole[:n])
            self.assertIn("zero_pp_rank_1", self.convert(folder, self.dir / "none", expect=1))
        (folder / "zero_pp_rank_0_mp_rank_01_optim_states.pt").write_bytes(whole)
        self.assertIn("tensor, pipeline or expert", self.convert(folder, self.dir / "none", expect=1))
        self.assertFalse((self.dir / "none").exists())


if __name__ == "__main__":
    unittest.main()
