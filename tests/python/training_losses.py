"""The losses that the trainings of the adapters' tests write: a line per update, with its number and its loss."""


def read_losses(path):
    """By update; those of an update that was repeated in a list."""
    found = {}
    for line in path.read_text().splitlines():
        step, loss = line.split()
        found.setdefault(int(step), []).append(float(loss))
    return found
