#!/usr/bin/env python3
"""Each function that libdcp.so exports has a man page of section 3 with its declaration and a description; groff and
mandoc find no warnings in the pages.

    man_functions.py PAGES LIBRARY [CASE...]"""
import functools, os, re, shutil, subprocess, sys

from hf_folder import cases

PAGES, LIBRARY = sys.argv[1:3]
del sys.argv[1:3]  # names of cases may follow


def page(name):
    with open(f"{PAGES}/{name}.3") as f:
        text = f.read()
    to = re.fullmatch(r"\.so man3/(\S+)\.3\n", text)
    return page(to.group(1)) if to else text


@functools.cache
def functions():
    exported = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True)
    return sorted({line.split()[-1].split("@")[0] for line in exported.stdout.splitlines() if " T " in line})


def test_each_function_is_declared_and_described_on_its_page():
    assert len(functions()) >= 60, f"only {len(functions())} functions?"
    for name in functions():
        with cases.part(name):
            assert os.path.exists(f"{PAGES}/{name}.3"), f"{name} has no page"
            synopsis, _, described = page(name).partition(".SH DESCRIPTION")
            assert re.search(rf"\b{name}\(", synopsis), f"{name} is not in its page's SYNOPSIS"
            assert re.search(rf"^\.SS .*\b{name}\b", described, re.M), f"{name} is not described on its page"


def test_man_libdcp_is_the_page_of_the_whole():
    assert page("libdcp") == page("dcp")


def own_pages():
    """Returns the paths of all pages, except pages that only refer to another one."""
    for file in sorted(os.listdir(PAGES)):
        with open(f"{PAGES}/{file}") as f:
            if not f.read().startswith(".so "):
                yield f"{PAGES}/{file}"


def check_no_warnings(*command, prints):
    """`prints`: true if the program's output on stdout consists of warnings."""
    if not shutil.which(command[0]):
        cases.skip(f"there is no {command[0]}")
    for path in own_pages():
        with cases.part(path):
            done = subprocess.run([*command, path], capture_output=True, text=True)
            said = done.stderr + (done.stdout if prints else "")
            assert done.returncode == 0 and not said, said


def test_groff_has_no_warnings():
    check_no_warnings("groff", "-ww", "-man", "-Tutf8", prints=False)


def test_mandoc_has_no_warnings():
    check_no_warnings("mandoc", "-Tlint", "-Wwarning", prints=True)


cases.main()
