#!/usr/bin/env python3
"""Each function that libdcp.so exports has a man page of section 3, which shows its declaration and says
something of it; the pages are free of groff's and mandoc's warnings.

    man_functions.py PAGES LIBRARY"""
import os, re, shutil, subprocess, sys

PAGES, LIBRARY = sys.argv[1:]
failed = False


def wrong(why):
    global failed
    failed = True
    print("FAILED:", why)


def page(name):
    with open(f"{PAGES}/{name}.3") as f:
        text = f.read()
    to = re.fullmatch(r"\.so man3/(\S+)\.3\n", text)
    return page(to.group(1)) if to else text


exported = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True)
functions = sorted({line.split()[-1].split("@")[0] for line in exported.stdout.splitlines() if " T " in line})
if len(functions) < 60:
    wrong(f"only {len(functions)} functions?")
for name in functions:
    if not os.path.exists(f"{PAGES}/{name}.3"):
        wrong(f"{name} has no page")
        continue
    synopsis, _, described = page(name).partition(".SH DESCRIPTION")
    if not re.search(rf"\b{name}\(", synopsis):
        wrong(f"{name} is not in its page's SYNOPSIS")
    if not re.search(rf"^\.SS .*\b{name}\b", described, re.M):
        wrong(f"{name} is not described on its page")

if page("libdcp") != page("dcp"):
    wrong("man libdcp is not the page of the whole")

for file in sorted(os.listdir(PAGES)):
    path = f"{PAGES}/{file}"
    with open(path) as f:
        if f.read().startswith(".so "):
            continue
    checks = [["groff", "-ww", "-man", "-Tutf8", path], ["mandoc", "-Tlint", "-Wwarning", path]]
    for check in checks:
        if shutil.which(check[0]):
            done = subprocess.run(check, capture_output=True, text=True)
            said = done.stderr + (done.stdout if check[0] == "mandoc" else "")
            if done.returncode or said:
                wrong(f"{file}: {check[0]}: {said.strip()}")
sys.exit(failed)
