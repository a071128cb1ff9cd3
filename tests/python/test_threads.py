"""Threads: one Checkpoint read by many, one Store used by many, and callbacks that call the store again."""

import faulthandler
import os
import random
import subprocess
import sys
import tempfile
import threading
import traceback
import unittest
import unittest.mock
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import libdcp

LIMIT_S = 120
THREADS = 8


class Test(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-threads-")
        self.addCleanup(scratch.cleanup)
        self.dir = scratch.name

    def in_threads(self, function, arguments):
        """Returns the results in order; raises an exception of any thread; a thread that hangs ends the test."""
        with ThreadPoolExecutor(THREADS) as pool:
            return [future.result(LIMIT_S) for future in [pool.submit(function, one) for one in arguments]]


class Reading(Test):
    def test_a_checkpoint_by_many(self):
        for layout in ("global", "sharded"):
            folder = f"{self.dir}/{layout}"
            state = {f"w{i}": np.full(1000 + i, float(i)) for i in range(50)}
            libdcp.save(folder, 1, state, layout=layout, shards=3 if layout == "sharded" else 0)
            with libdcp.Checkpoint(folder) as checkpoint:
                proof = checkpoint.proof()

                def read(i):
                    name = f"/model/w{i % 50}"
                    part = checkpoint.read(name, (i % 10,), (500,))
                    whole = checkpoint[name]
                    self.assertTrue((part == i % 50).all() and (whole == i % 50).all(), name)
                    self.assertEqual(len(whole), 1000 + i % 50)
                    if i % 100 == 0:
                        self.assertEqual(checkpoint.proof(), proof)
                        self.assertEqual(checkpoint.diff(checkpoint), {})
                        self.assertEqual(checkpoint.verify(), [])
                self.in_threads(read, range(1000))

    def test_a_read_in_parts(self):
        shape = (3, 1, 1200, 1700)  # 49 MB; an index of the first dimension is smaller than a read
        wide = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
        libdcp.save(self.dir, 1, {"wide": wide, "long": wide.reshape(1, -1), "scalar": np.array(3, np.float32)})
        with libdcp.Checkpoint(self.dir) as checkpoint:
            self.assertTrue((checkpoint["/model/wide"] == wide).all())
            self.assertTrue((checkpoint["/model/long"] == wide.reshape(1, -1)).all())
            self.assertEqual(checkpoint["/model/scalar"], 3)
            start, count = (1, 0, 7, 11), (2, 1, 1100, 1600)
            self.assertTrue((checkpoint.read("/model/wide", start, count) == wide[1:, :, 7:1107, 11:1611]).all())

    def test_a_close_beside_reads(self):
        libdcp.save(self.dir, 1, {"w": np.arange(300000.0)})
        for _ in range(20):
            checkpoint, begun = libdcp.Checkpoint(self.dir), threading.Barrier(THREADS + 1)

            def read(_):
                begun.wait(LIMIT_S)
                while True:
                    try:
                        self.assertTrue((checkpoint["/model/w"] == np.arange(300000.0)).all())
                    except ValueError as e:
                        return str(e)
            with ThreadPoolExecutor(THREADS) as pool:
                ends = [pool.submit(read, i) for i in range(THREADS)]
                begun.wait(LIMIT_S)
                checkpoint.close()
                self.assertEqual({end.result(LIMIT_S) for end in ends}, {"the checkpoint is closed"})
            checkpoint.close()


class Saving(Test):
    def test_a_store_by_many(self):
        state, numbers = {"w": np.arange(3000.0)}, iter(range(1, 1000))
        with libdcp.Store(self.dir, replace=True) as store:
            def use(i):
                what = i % 6
                if what in (0, 1):
                    store.save(next(numbers), state)
                elif what == 2:
                    store.save_async(next(numbers), {"w": np.arange(3000.0)}).wait()
                elif what == 3:
                    store.fence()
                    store.newest()
                elif what == 4:
                    store.is_due(i)
                    store.continue_from(store.newest() or 0)
                elif store.steps():
                    into = {"w": np.zeros(3000)}
                    store.load(into)
                    self.assertTrue((into["w"] == state["w"]).all())
            order = list(range(60))
            random.Random(1).shuffle(order)
            self.in_threads(use, order)
            self.assertGreater(len(store.steps()), 0)
        for step in libdcp.steps(self.dir):
            with libdcp.Checkpoint(libdcp.store.step_path(self.dir, step)) as checkpoint:
                self.assertEqual(checkpoint.verify(), [])

    def test_a_list_by_many(self):
        tiers = [libdcp.Tier(f"{self.dir}/fast", keep=2), libdcp.Tier(f"{self.dir}/slow", every=2)]
        numbers = iter(range(1, 1000))
        store = libdcp.Store(tiers)

        def use(i):
            if i % 3 == 0:
                saving = store.save_async(next(numbers), {"w": np.arange(3000.0)})
                saving.fence()
                saving.wait()
            elif i % 3 == 1:
                store.save(next(numbers), {"w": np.arange(3000.0)})
            else:
                store.is_due(i)
                store.steps()
        for call in (*[lambda: self.in_threads(use, range(24))] * 3, store.close):
            try:
                call()
            except libdcp.Error as e:  # threads get their numbers in another order than the store
                self.assertEqual(e.status, libdcp.Status.STATE)

    def test_a_saving_by_many(self):
        for cancels in (False, True):
            with libdcp.Store(f"{self.dir}/{cancels}") as store:
                for step in range(1, 6):
                    saving = store.save_async(step, {"w": np.arange(100000.0)})

                    def use(i):
                        if cancels and i == 3:
                            saving.cancel()
                        if i % 2:
                            saving.fence()
                        return saving.exception(LIMIT_S)
                    failures = set(self.in_threads(use, range(THREADS)))
                    self.assertEqual(len(failures), 1)
                    failure = failures.pop()
                    self.assertTrue(failure is None or cancels and failure.status == libdcp.Status.CANCELLED)
                    self.assertEqual(step in store.steps(), failure is None)

    def test_a_close_beside_saves(self):
        for _ in range(5):
            store = libdcp.Store(self.dir, replace=True)

            def save(i):
                try:
                    store.save(i + 1, {"w": np.arange(3000.0)})
                except ValueError as e:
                    return str(e)
            with ThreadPoolExecutor(THREADS) as pool:
                ends = [pool.submit(save, i) for i in range(THREADS)]
                store.close()
                self.assertLessEqual({end.result(LIMIT_S) for end in ends}, {None, "the store is closed"})
            with self.assertRaisesRegex(ValueError, "closed"):
                store.save(99, {"w": np.ones(1)})
            store.close()


    def test_a_saving_thread_that_is_late(self):
        """The saving thread comes to the end of a save that another thread has ended meanwhile. The holder of the
        store waits for the next save, which the saving thread has yet to begin."""
        turn, settle = libdcp.saving.Saving._turn, libdcp.Store._settle
        is_late, is_held, savings = threading.Event(), threading.Event(), []

        def late(saving):
            if threading.current_thread().name.startswith("libdcp-saving") and savings and saving is not savings[0]:
                is_late.set()
                is_held.wait(LIMIT_S)
            return turn(saving)

        def held(store):
            if store._saving_step == 3:
                is_held.set()
            return settle(store)
        faulthandler.dump_traceback_later(LIMIT_S, exit=True)
        self.addCleanup(faulthandler.cancel_dump_traceback_later)
        with unittest.mock.patch.object(libdcp.saving.Saving, "_turn", late):
            with unittest.mock.patch.object(libdcp.Store, "_settle", held), libdcp.Store(self.dir) as store:
                state = store.declare({"w": np.ones(100)})
                for step in range(1, 5):
                    savings.append(store.save_async(step, state))
                    if step == 2:
                        self.assertTrue(is_late.wait(LIMIT_S))
                    if step < 3:
                        savings[-1].wait()
                savings[-1].wait()
                self.assertEqual(store.steps(), [1, 2, 3, 4])


class ComingBack(Test):
    def refused(self, use, **options):
        """Returns the error of a progress function that uses the store whose save has called it."""
        said = []

        def progress(*_):
            if not said:
                try:
                    use()
                    said.append("")
                except RuntimeError as e:
                    said.append(str(e))
        return said, progress

    def test_a_progress_function(self):
        with libdcp.Store(self.dir) as store:
            state = {"w": np.arange(100000.0)}
            for step, use in enumerate((lambda: store.save(99, state), lambda: store.load(state), store.newest,
                                        lambda: store.save_async(99, state), store.close), 1):
                said, progress = self.refused(use)
                store.save(step, state, progress=progress)
                self.assertRegex(said[0], "can't use the store")
                self.assertEqual(store.steps()[-1], step)
            said, progress = self.refused(store.steps)
            store.save(50, state, progress=progress)
            self.assertEqual(said, [""])

    def test_a_progress_function_of_a_save_in_flight(self):
        with libdcp.Store(self.dir) as store:
            state = {"w": np.arange(100000.0)}
            for step, use in enumerate((lambda: store.save(99, state), store.fence, lambda: savings[-1].wait(),
                                        lambda: savings[-1].exception(1), store.newest), 1):
                told = threading.Event()
                savings = []
                said, progress = self.refused(lambda: told.wait(LIMIT_S) and use())
                savings.append(store.save_async(step, state, progress=progress))
                told.set()
                store.save(step + 100, state) if step == 5 else savings[-1].wait()
                self.assertRegex(said[0], "can't use the store|can't wait for it")

    def test_a_done_callback(self):
        with libdcp.Store(self.dir) as store:
            done, state = threading.Event(), {"w": np.arange(1000.0)}

            def save_next(_):
                store.save(2, state)
                done.set()
            saving = store.save_async(1, state)
            saving.add_done_callback(save_next)
            saving.wait()
            self.assertTrue(done.wait(LIMIT_S))
            self.assertEqual(store.steps(), [1, 2])

    def test_on_published_waits_for_a_thread_that_uses_the_store(self):
        """The call that ends the save has the store."""
        def publish(step, _path):
            with ThreadPoolExecutor(1) as pool:
                found.append((step, pool.submit(store.newest).result(LIMIT_S)))
        state = {"w": np.arange(1000.0)}
        uses = {"save": lambda: store.save(2, state), "save_async": lambda: store.save_async(2, state).wait(),
                "load": lambda: store.load(state), "continue_from": lambda: store.continue_from(1),
                "remove": lambda: self.assertRaises(libdcp.Error, store.remove, 1),
                "save that fails": lambda: self.assertRaises(TypeError, store.save, 2, {"w": object()}),
                "close": lambda: None}
        for how, use in uses.items():
            found = []
            # No thread of the package ends the save.
            no_thread = unittest.mock.patch.object(libdcp.saving.Worker, "start", lambda *_arguments: False)
            with self.subTest(how), no_thread:
                faulthandler.dump_traceback_later(20, exit=True)
                with libdcp.Store(f"{self.dir}/{how}", on_published=publish) as store:
                    store.save_async(1, state)
                    use()
                    if how != "close":
                        self.assertEqual(found[0][0], 1)
                faulthandler.cancel_dump_traceback_later()
                self.assertEqual([step for step, _ in found], [1, 2] if how in ("save", "save_async") else [1])

    def test_a_function_raises(self):
        class Mine(Exception):
            pass

        def progress(*_):
            raise Mine("of my own")
        state = {"w": np.arange(100000.0)}
        with libdcp.Store(self.dir) as store:
            store.save(1, state)
            for call in (lambda: store.save(2, state, progress=progress), lambda: store.load(state, progress=progress),
                         lambda: store.save_async(2, state, progress=progress).wait()):
                try:
                    call()
                    self.fail("it has not raised")
                except Mine as e:  # assertRaises would remove its traceback
                    self.assertEqual(traceback.extract_tb(e.__traceback__)[-1].name, "progress")
                    self.assertIsNone(e.__cause__)
            self.assertEqual(store.steps(), [1])
            store.save(3, state)
            with libdcp.Checkpoint(self.dir) as checkpoint, self.assertRaises(Mine):
                checkpoint.verify(progress)

    def test_a_store_without_a_name(self):
        libdcp.Store(self.dir)  # released immediately
        libdcp.save(self.dir, 1, {"w": np.ones(3)})


class Forks(Test):
    def test_a_child_of_a_process_whose_threads_hold_locks(self):
        subprocess.run([sys.executable, __file__, "forks", self.dir], check=True, timeout=LIMIT_S)


def forks(directory):
    """Children that are forked while another thread uses store and checkpoint close both and end."""
    store, state = libdcp.Store(directory, keep=2), {"w": np.arange(1000.0)}
    store.save(1, state)
    checkpoint, ends = libdcp.Checkpoint(directory), threading.Event()

    def use():
        step = 2
        while not ends.is_set():
            store.save(step, state)
            checkpoint["/model/w"]
            step += 1
    thread = threading.Thread(target=use)
    thread.start()
    for _ in range(20):
        child = os.fork()
        if child == 0:
            checkpoint.close()
            try:
                store.close()
            finally:
                os._exit(int(store._is_open))
        if os.waitpid(child, 0)[1] != 0:
            os._exit(1)
    ends.set()
    thread.join()
    checkpoint.close()
    store.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["forks"]:
        forks(sys.argv[2])
    else:
        unittest.main()
