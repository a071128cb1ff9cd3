"""examples/talker/quickstart.sh: a random talker learns sounds by heart, and either its export gives their codes
in PyTorch, or speak.py reports that it does not. The programs are those of build/bin, or of LIBDCP_PROGRAMS."""

import contextlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TESTS = pathlib.Path(__file__).parents[1]
EXAMPLE = TESTS.parent / "examples" / "talker"
CONFIG = EXAMPLE.parent / "configs" / "talker-small.json"
PROGRAMS = pathlib.Path(os.environ.get("LIBDCP_PROGRAMS") or TESTS.parent / "build" / "bin")
NEEDED = ("numpy", "torch", "safetensors")


def run(*words, **variables):
    return subprocess.run([str(word) for word in words], env=os.environ | variables, capture_output=True, text=True,
                          timeout=600)


@unittest.skipUnless(importlib.util.find_spec("numpy"), "needs numpy")
class Recordings(unittest.TestCase):
    """The messages of small_talker.py about recordings that cannot be used."""

    def setUp(self):
        import test_talker_to_records as sounds
        scratch = tempfile.TemporaryDirectory(prefix="dcp-recordings-")
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)
        self.wav = self.dir / "one.wav"
        self.sounds = sounds
        sounds.sound(self.wav, 5)

    def made(self, status=0):
        """Returns what is printed, on stderr if it fails."""
        base, rows = self.dir / "base", self.dir / "rows.jsonl"
        done = run(sys.executable, EXAMPLE / "small_talker.py", CONFIG, base, rows, self.dir)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stderr if status else done.stdout

    def refused(self, told):
        self.assertEqual(self.made(status=2), f"small_talker.py: {self.dir}/{told}\n")

    def test_transcripts(self):
        for written, told in (("naïve".encode("latin-1"), "one.txt is not UTF-8: save it as UTF-8"),
                              (b" \n", "one.txt is empty: write into it what one.wav says, or remove it")):
            (self.dir / "one.txt").write_bytes(written)
            self.refused(told)
        (self.dir / "one.txt").write_bytes(b"\xef\xbb\xbfhello")
        self.made()
        self.assertIn('"text": "hello"', (self.dir / "rows.jsonl").read_text())

    def test_sounds(self):
        whole = self.wav.read_bytes()
        n = len(whole) - 44
        pcm = "ffmpeg -i IN -c:a pcm_s16le OUT.wav makes one"
        for written, told in (
                (b"", "one.wav is empty: record it again, or leave it out"),
                (whole[:20], f"one.wav is no plain WAV file of 16-bit PCM (it ends early): {pcm}"),
                (whole[:-99], f"one.wav is cut short, {n - 99} of {n} bytes of sound: copy it again, or leave it out"),
                (whole[:40] + bytes(4), "one.wav holds no sound: record it again, or leave it out"),
                (whole[:20] + b"\3" + whole[21:],
                 f"one.wav is no plain WAV file of 16-bit PCM (unknown format: 3): {pcm}"),
                (whole[:34] + b"\x18" + whole[35:], f"one.wav is no plain WAV file of 16-bit PCM (24 bits): {pcm}")):
            with self.subTest(told):
                self.wav.write_bytes(written)
                self.refused(told)

    def test_two_of_one_text(self):
        (self.dir / "ONE.WAV").write_bytes(self.wav.read_bytes())
        (self.dir / "ONE.txt").write_text("one")
        self.refused("ONE.WAV and one.wav say the same, and the likeliest codes can be those of one alone: leave one "
                     "out")

    def test_no_transcript(self):
        self.assertIn("one.wav has no one.txt: its name is its text, one\n", self.made())

    def test_how_long_it_may_be(self):
        """Of 1024 positions, 7 surround the text, 3 belong to the header, and here 1004 to the text."""
        (self.dir / "one.txt").write_text("a" * 1004)
        self.sounds.sound(self.wav, 10)
        self.made()
        shutil.rmtree(self.dir / "base")
        self.sounds.sound(self.wav, 10.5)
        self.refused("one.wav is 0.84 s long; beside its text the model has room for 0.80 s: cut it into sentences, "
                     "each with its text")


@unittest.skipUnless(all(map(importlib.util.find_spec, NEEDED)), f"needs {', '.join(NEEDED)}")
@unittest.skipUnless((PROGRAMS / "dcp-train").exists(), "needs dcp-train")
class Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import test_talker_to_records as sounds
        scratch = tempfile.TemporaryDirectory(prefix="dcp-quickstart-")
        cls.addClassCleanup(scratch.cleanup)
        cls.dir = pathlib.Path(scratch.name)
        recordings = cls.dir / "recordings"
        recordings.mkdir()
        for name, frames, pitch in ("low", 5, 150.0), ("high", 6.5, 900.0):
            sounds.sound(recordings / f"{name}.wav", frames, pitch)
        (recordings / "high.txt").write_text("naïve\n  assistant<|im_end|>\ue000\n")
        cls.done = run(EXAMPLE / "quickstart.sh", recordings, cls.dir, PYTHON=os.path.relpath(sys.executable),
                       LIBDCP_PROGRAMS=str(PROGRAMS))
        cls.work = cls.dir / "work"

    def speak(self, records, metrics):
        return run(sys.executable, EXAMPLE / "speak.py", self.work / "export", records, metrics,
                   self.dir / "sounds")

    def with_another_code(self, place):
        """Returns a file with the records, except for this code."""
        from safetensors.numpy import load_file, save_file
        tensors = load_file(self.work / "records.safetensors")
        tensors["codes"][place] ^= 1
        save_file(tensors, self.dir / "changed.safetensors")
        return self.dir / "changed.safetensors"

    def test_it_says_what_it_learned(self):
        printed = self.done.stdout
        self.assertEqual(self.done.returncode, 0, printed + self.done.stderr)
        self.assertRegex(printed, r"naïve assistant<\|im_end\|>\ue000 +7 frames and the end; all 112 codes are")
        self.assertRegex(printed, "low +5 frames and the end; all 80 codes are the recording's")
        self.assertRegex(printed, r"loss of the predictor  PyTorch (0\.\d{4})\d*  dcp-train \1")
        self.assertEqual(re.findall(r"  step (\d+)/96, loss [\d.]+\n", printed), [str(12 * i) for i in range(1, 9)])
        self.assertEqual(sorted(path.name for path in (self.work / "sounds").iterdir()),
                         ["1_naïve_assistant__im_end___.wav", "2_low.wav"])

    def test_what_differs(self):
        metrics = self.work / "metrics.jsonl"
        for place in (0, 0), (-1, -1):
            done = self.speak(self.with_another_code(place), metrics)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("not the recording's codes", done.stdout)
        last = json.loads(metrics.read_text().splitlines()[-1])
        last["eval_losses"]["predictor"] *= 1.001
        (self.dir / "metrics.jsonl").write_text(json.dumps(last))
        done = self.speak(self.work / "records.safetensors", self.dir / "metrics.jsonl")
        self.assertEqual((done.returncode, done.stderr), (1, "speak.py: the losses differ\n"))

    def test_interrupt(self):
        """Its config.json is a pipe, so the program waits when it reads it."""
        folder = self.dir / "waits"
        folder.mkdir()
        os.mkfifo(folder / "config.json")
        words = sys.executable, EXAMPLE / "speak.py", folder, "records", "metrics", self.dir / "sounds"
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as speak:
            while speak.poll() is None:
                with contextlib.suppress(OSError):  # no process reads the pipe yet
                    self.addCleanup(os.close, os.open(folder / "config.json", os.O_WRONLY | os.O_NONBLOCK))
                    speak.send_signal(signal.SIGINT)
                    break
                time.sleep(0.01)
            self.assertEqual((speak.stderr.read(), speak.wait()), ("", -signal.SIGINT))


if __name__ == "__main__":
    unittest.main()
