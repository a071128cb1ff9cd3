#!/usr/bin/env python3
"""What ranks tell dcp-run on its board, and what they do when it asks: phases, progress, published steps; saves
while they go on; ends after a save, with 143 or, to be run again, with 75."""
import threading
from board_lib import *

make_text()
endless = config(checkpoint={"every": 0}, max_steps=1000000, scheduler={"type": "constant"})

# Progress of all ranks, a save that is asked for, and an end.
run = BoardRun(3, endless)
seen = set()


def watch():
    while run.process.poll() is None:
        seen.update(e.micro_batch for e in run.entries())


watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
run.wait_for_step(2)
before = [e.progress for e in run.entries()]
check([e.told for e in run.entries()] == [1] * 3, "ranks do not tell that they run")
check([e.published for e in run.entries()] == [0] * 3, "published without a save")
run.wait_for_step(4)
for e, old in zip(run.entries(), before):
    check(e.progress >= old + 3, f"progress {old}, then {e.progress}: it does not grow with micro-batches")
    at = list(e.at_ns)
    check(at[0] == 0 and at[1:] == sorted(at[1:]) and at[1] > 0, f"times of the phases: {at}")
    check(e.phase == len(PHASES) and e.slowest_ns > 0, f"phase {e.phase}, slowest step {e.slowest_ns} ns")
check(run.board.resumed_is_set == 1 and b"beginning" in run.board.resumed, run.board.resumed)
run.board.saves_asked = 1
run.wait_for(lambda: all(e.saves_done == 1 for e in run.entries()), "the answer to a save")
saved = [e.published - 1 for e in run.entries()]
check(steps() == saved[:1] and len(set(saved)) == 1, f"{steps()} are there, published is {saved}")
run.wait_for_step(saved[0] + 3)
check(steps() == saved[:1], f"one save was asked for: {steps()}")
run.board.end_asked = STOP
run.end_with(143)
watcher.join()
check(seen == {0, 1, 2, 3}, f"micro-batches {seen} of 7 on 3 ranks")
last = run.board.entries[0].step
check(steps() == [saved[0], last] and run.board.entries[2].published == last + 1, f"{steps()}, not {last}")
for what in (f"dcp-run: step {saved[0]} is saved", f"stopped by dcp-run: step {last} is saved in ckpt"):
    check(what in run.said(), run.said())

# On, and to be run again: by the board, by SIGUSR2, and by SIGUSR2 without a board. A SIGTERM does not change that.
run = BoardRun(2, endless)
run.wait_for_step(last + 1)
check(run.board.resumed.decode() == f"step {last} from ckpt", run.board.resumed)
run.board.end_asked = REQUEUE
run.end_with(75)
run = BoardRun(2, endless)
run.wait_for_step(run.board.entries[0].step + 1)
os.kill(run.pids()[1], signal.SIGUSR2)
run.wait_for(lambda: "SIGUSR2: step" in run.said(), "the end that SIGUSR2 asks for")
run.end_with(75)
alone = Run(1, endless)
alone.wait_for(lambda: "going on from step" in alone.text(alone.err), "the start")
alone.process.send_signal(signal.SIGUSR2)
alone.process.send_signal(signal.SIGTERM)
check(alone.wait() == 75, f"not 75 after SIGUSR2: {alone.text(alone.err)}")
check("stopped by SIGUSR2" in alone.text(alone.err), alone.text(alone.err))

# A board of another build is left alone, and the run goes on without.
run = BoardRun(1, endless, f"max_steps={steps()[-1] + 2}", bytes=8)
check(run.wait() == 0 and run.board.entries[0].told == 0, run.said())
# Wrong usage is told, too.
run = BoardRun(2, endless, "checkpoint.resume=never")
run.end_with(2)
check(all(e.phase == 1 for e in run.entries()), "phases of ranks that refuse")
