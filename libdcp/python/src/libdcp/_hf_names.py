"""The names of a model's tensors in a Hugging Face folder, and which of them is a copy of another."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

# The parts that wrappers add to names: torch.compile, FSDP, activation checkpointing and PEFT anywhere; DDP and PEFT
# before all names of a model.
_PARTS = frozenset(("_orig_mod", "_fsdp_wrapped_module", "_fpw_module", "_checkpoint_wrapped_module", "base_layer"))
_LEADING = ("module.", "base_model.model.")
COPY = "lm_head.weight"
_EMBEDDINGS = ("model.embed_tokens.weight", "transformer.wte.weight", "wte.weight")


def _unwrapped(name: str) -> str:
    *parts, last = name.split(".")
    return ".".join((*(part for part in parts if part not in _PARTS), last))


def _leading(names: Collection[str]) -> str:
    found = ""
    while names:
        part = next((part for part in _LEADING if next(iter(names)).startswith(found + part)), None)
        if part is None or not all(name.startswith(found + part) for name in names):
            break
        found += part
    return found


def unwrapper(names: Collection[str]) -> Callable[[str], str]:
    """A function that strips a name in a model of the parts that wrappers have added.

    Args:
        names: all names of the model.
    """
    leading = _leading([_unwrapped(name) for name in names])
    return lambda name: _unwrapped(name).removeprefix(leading) or _unwrapped(name)


def embedding_of(config: Mapping[str, Any], names: Collection[str]) -> str | None:
    """The embedding that the configuration also uses as ``lm_head.weight``; None if it ties none of these names.
    GPT-2's embedding is tied unless the configuration says otherwise."""
    tie = config.get("tie_word_embeddings")
    is_tied = config.get("model_type") == "gpt2" if tie is None else tie is True
    return next((name for name in _EMBEDDINGS if name in names), None) if is_tied else None
