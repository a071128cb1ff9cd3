#!/usr/bin/env python3
"""--plot draws a metrics file: well-formed XML in which no peak is lost, however many steps there are, with evaluations,
changes of the number of ranks, and runs that went back."""
import json, math, os, subprocess
import xml.etree.ElementTree as xml
from train_lib import BIN, cases, check, make_text, tool

SVG = "{http://www.w3.org/2000/svg}"


def write(path, lines):
    with open(path, "w") as f:
        f.writelines(json.dumps(line) + "\n" for line in lines)


def line(step, **over):
    return {"step": step, "loss": 2.0 + 0.1 * (step % 3), "tokens_per_s": 5e4, "save_stall_s": 0.0, "ranks": 4, **over}


def draw(metrics):
    tool("dcp-train", "--plot", "out.svg", metrics)
    root = xml.parse("out.svg").getroot()
    curves = [[tuple(map(float, p.split(","))) for p in e.get("points").split()]
              for e in root.iter(SVG + "polyline")]
    return curves, [e.text for e in root.iter(SVG + "text")], list(root.iter(SVG + "circle"))


heights = lambda curve: max(y for _, y in curve) - min(y for _, y in curve)


def test_peaks_of_many_steps_are_kept():
    # 50,000 steps with one peak, one low and one stall, with evaluations, and with a change of the number of ranks.
    many = [line(s) for s in range(1, 50001)]
    many[31233]["loss"], many[41233]["loss"], many[777]["save_stall_s"] = 9.5, 0.5, 3.0
    for s in range(10000, 50001, 10000):
        many[s - 1]["eval_loss"] = 2.5
    for entry in many[20000:]:
        entry["ranks"] = 8
    write("many.jsonl", many)
    curves, texts, dots = draw("many.jsonl")
    check(len(curves) == 5, f"{len(curves)} curves, not loss, its mean, evaluation, speed and stall")
    loss, mean, evaluation, speed, stall = curves
    check(heights(mean) < heights(loss) / 20 and mean[-1][0] == loss[-1][0], "the mean of the loss is not smooth")
    check(len(loss) < 3000 and os.path.getsize("out.svg") < 300000, "too many points are drawn")
    base = sorted(y for _, y in loss)[len(loss) // 2]
    above, below = [p for p in loss if p[1] < base - 50], [p for p in loss if p[1] > base + 20]
    check(len(above) == 1 and len(below) == 1, "the peak or the low of the loss is lost")
    left, right = loss[0][0], loss[-1][0]
    check(abs((above[0][0] - left) / (right - left) - 31233 / 49999) < 0.002, "the peak is elsewhere")
    check(sum(y < max(y for _, y in stall) - 50 for _, y in stall) == 1, "the stall is lost")
    check("3000" in texts and "milliseconds that a step waited for saves" in texts, f"no milliseconds: {texts}")
    check(len(evaluation) == 5 and len(dots) == 5, "not all evaluations are drawn")
    check(len({y for _, y in speed}) == 1, "the speed is not even")
    for text in ("loss", "training", "evaluation", "step", "8 ranks", "many.jsonl", "10", "50k"):
        check(text in texts, f"no text {text} in {texts}")
    check("4 ranks" not in texts and texts.count("8 ranks") == 1, "ranks are named where they do not change")


def test_stalls_of_microseconds_do_not_fill_the_axis():
    # The axis extends to 10 ms.
    write("still.jsonl", [line(s, save_stall_s=1e-6 * (s % 7)) for s in range(1, 101)])
    curves, texts, dots = draw("still.jsonl")
    check("10" in texts and heights(curves[-1]) < 1, f"noise fills an axis: {heights(curves[-1])}, {texts}")


def test_steps_that_were_computed_again_are_drawn_once():
    # The file has the lines of two runs, the second of which went back, and a line that a kill has cut.
    write("back.jsonl", [line(1, loss=3.0), line(2, loss=77.0), line(2, loss=2.0), line(3, loss=1.0)])
    with open("back.jsonl", "a") as f:
        f.write('{"step": 4, "lo')
    curves, texts, dots = draw("back.jsonl")
    check([len(c) for c in curves] == [3, 3, 3] and len(dots) == 9, f"{curves}")
    check(curves[0][0][1] < curves[0][1][1] < curves[0][2][1], "the loss does not fall")
    check("evaluation" not in texts and "80" not in texts, f"what was done again is drawn: {texts}")


def test_one_step_is_a_dot_in_each_curve():
    write("one.jsonl", [line(7)])
    curves, texts, dots = draw("one.jsonl")
    check(not curves and len(dots) == 3 and texts.count("7") == 3, "one step is three dots")


def test_values_that_are_not_finite_are_left_out():
    write("null.jsonl", [line(1, eval_loss=None), line(2, loss=None, tokens_per_s=None), line(3)])
    curves, texts, dots = draw("null.jsonl")
    check([len(c) for c in curves] == [3] and len(dots) == 7, f"a gap has a line over it: {curves}")
    write("nulls.jsonl", [line(s, loss=None) for s in (1, 2)])
    curves, texts, dots = draw("nulls.jsonl")
    check([len(c) for c in curves] == [2, 2], f"{curves}")


def refused(status, *args, **options):
    done = subprocess.run([f"{BIN}/dcp-train", *args], capture_output=True, text=True, **options)
    check(done.returncode == status, f"{args}: exit {done.returncode}: {done.stderr}")
    return done.stderr


def test_a_curve_has_gaps_where_values_are_missing():
    write("gap.jsonl", [line(s, loss=None if s in (3, 90) else 2.0,
                             eval_loss=1.0 if s % 50 == 0 else None) for s in range(1, 101)])
    curves, texts, dots = draw("gap.jsonl")
    check([len(c) for c in curves[:7]] == [2, 86, 10, 2, 86, 10, 2], f"{[len(c) for c in curves]}")
    with open("nan.jsonl", "w") as f:  # has NaN and Infinity, as Python's json writes them
        for s, loss in enumerate((3.0, math.nan, math.inf, -math.inf, 2.0, 1.0), 1):
            f.write(json.dumps(line(s, loss=loss)) + "\n")
    curves, texts, dots = draw("nan.jsonl")
    check([len(c) for c in curves] == [2, 6, 6] and len(dots) == 15, f"{curves}")


def test_wrong_files_are_refused():
    write("one.jsonl", [line(7)])
    write("many.jsonl", [line(s) for s in range(1, 5001)])
    make_text()
    check("text:1: not a line of a metrics file" in refused(2, "--plot", "out.svg", "text"), "what is wrong")
    check("contains no step yet" in refused(2, "--plot", "out.svg", "/dev/null"), "what is wrong")
    check("cannot read" in refused(2, "--plot", "out.svg", "nowhere.jsonl"), "what is wrong")
    check("not a drawing" in refused(2, "--plot", "text", "one.jsonl"), "what is wrong")
    check("No space left" in refused(3, "--plot", "/dev/full", "many.jsonl"), "what is wrong")
    refused(2, "--plot", "out.svg")
    refused(2, "--plot", "out.svg", "one.jsonl", "many.jsonl")


cases.main()
