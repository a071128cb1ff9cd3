#!/usr/bin/env python3
"""Runs a script by tests/support/cases.py and checks which cases run, the output, and the exit status."""
import os, subprocess, sys, tempfile

SUPPORT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support")
sys.path.insert(0, SUPPORT)
import cases

SCRIPT = '''
import os, sys
sys.path.insert(0, sys.argv.pop(1))
import cases
@cases.shared
def made():
    print("made once")
    open("file", "w").close()
    return 5
@cases.shared
def broken():
    raise ValueError("cannot be made")
def test_fails():
    os.environ["LEFT"] = "1"
    open("left", "w").close()
    cases.at_end(print, "second end")
    cases.at_end(print, "first end")
    assert False, "on purpose"
def test_skips():
    cases.skip("no such machine")
def test_passes():
    assert "LEFT" not in os.environ and os.listdir(".") == [] and os.getcwd().endswith("/test_passes")
def test_uses():
    assert cases.use(made) == 5 and made() == 5 and os.listdir(".") == ["file"]
def test_copies_again():
    assert cases.use(made) == 5
    os.unlink("file")
def test_has_parts():
    for number in 1, 2, 3:
        with cases.part(f"part {number}"):
            assert number != 2, "number is 2"
    print("after the parts")
def test_exits():
    sys.exit(0)
def test_needs_broken():
    broken()
def helper_of_tests():
    raise AssertionError("not a case")
cases.main()
'''


def outcome(*args, expect, **environment):
    """Returns the lines that the script prints, without times."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-B", "-c", SCRIPT, SUPPORT, *args], cwd=folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **environment})
    assert done.returncode == expect, f"{args}: exit {done.returncode}\n{done.stdout}"
    return [line.partition(" (")[0] + line.partition(" s)")[2] for line in done.stdout.splitlines()]


def test_a_failure_does_not_hide_later_cases():
    said = outcome(expect=1)
    results = [line for line in said if line.startswith(("ok", "FAIL", "skipped"))]
    assert results == ["FAIL test_fails", "skipped test_skips: no such machine", "ok test_passes", "ok test_uses",
                       "ok test_copies_again", "FAIL test_has_parts", "FAIL test_exits", "FAIL test_needs_broken"], said
    assert "AssertionError: on purpose" in said and said.count("made once") == 1, said
    assert said.index("first end") < said.index("second end") < said.index("FAIL test_fails"), said


def test_all_parts_of_a_case_run():
    said = outcome("test_has_parts", expect=1)
    assert [line for line in said if "part" in line and "File" not in line and "line" not in line] == [
        "failed part: part 2", "after the parts", "FAIL test_has_parts"], said
    assert "AssertionError: number is 2" in said, said


def test_cases_are_selected_by_name():
    assert outcome("test_passes", expect=0) == ["ok test_passes"]
    assert outcome("test_?ses", "test_pass*", expect=0) == ["ok test_passes", "made once", "ok test_uses"]
    assert outcome("test_copies_*", expect=0) == ["made once", "ok test_copies_again"]
    assert outcome(expect=0, DCP_CASES="test_uses test_passes") == ["ok test_passes", "made once", "ok test_uses"]
    assert "no case is named test_absent" in outcome("test_passes", "test_absent", expect=2)[0]


def test_only_skipped_cases_are_a_skipped_script():
    assert outcome("test_skips", expect=77) == ["skipped test_skips: no such machine"]
    assert outcome("test_skips", "test_passes", expect=0)[0] == "skipped test_skips: no such machine"


def test_list_names_the_cases():
    assert outcome("--list", expect=0) == ["test_fails", "test_skips", "test_passes", "test_uses", "test_copies_again",
                                           "test_has_parts", "test_exits", "test_needs_broken"]


with tempfile.TemporaryDirectory(prefix="cases.") as scratch:
    os.chdir(scratch)
    cases.main()
