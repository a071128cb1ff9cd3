"""Small conversations made by rules: sums, in one turn or two, and descriptions of parts of Python, in the words
of its docstrings."""
import builtins
import json
import math
import random

SUMS, SEED = 240, 7
LARGEST = 60  # the numbers that are added
ASKED = (12, 7)  # does not occur in any conversation
OWNERS = {"": builtins, "str.": str, "list.": list, "dict.": dict, "set.": set, "bytes.": bytes, "int.": int,
          "float.": float, "math.": math}


def question(a, b):
    return f"What is {a} plus {b}?"


def answer(a, b):
    return f"{a} plus {b} is {a + b}."


def turns(*texts):
    roles = ("user", "assistant") * (len(texts) // 2)
    return [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]


def sums(rng):
    pairs = [(a, b) for a in range(1, LARGEST) for b in range(1, LARGEST) if {a, b} != set(ASKED)]
    for i, (a, b) in enumerate(rng.sample(pairs, SUMS)):
        texts = [question(a, b), answer(a, b)]
        if i % 3 == 0:
            more = rng.randint(1, 9)
            texts += [f"And {more} more?", answer(a + b, more)]
        yield turns(*texts)


def python_parts():
    """Returns the first sentence of the docstring of each function and type that has a name and a docstring."""
    for prefix, owner in OWNERS.items():
        for name, part in vars(owner).items():
            paragraphs = (getattr(part, "__doc__", None) or "").strip().split("\n\n")
            said = " ".join(next((p for p in paragraphs if not p.startswith(name + "(")), "").split())
            if callable(part) and not name.startswith("_") and said:
                yield turns(f"What does Python's {prefix}{name} do?", said.split(". ")[0].rstrip(".") + ".")


def write(path):
    with open(path, "w", encoding="utf-8") as f:
        for chat in [*sums(random.Random(SEED)), *python_parts()]:
            f.write(json.dumps({"messages": chat}) + "\n")
