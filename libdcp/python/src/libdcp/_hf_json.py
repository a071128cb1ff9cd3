"""The JSON files of an export, as dcp-export writes them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

_ARCHITECTURES = {
    "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM", "gpt2": "GPT2LMHeadModel", "vit": "ViTForImageClassification",
    "qwen3_tts": "Qwen3TTSForConditionalGeneration"}
_DTYPES = {"F64": "float64", "F16": "float16", "BF16": "bfloat16"}
_BYTES = 256


def _reals(value: Any) -> Iterator[float]:
    if isinstance(value, float) and math.isfinite(value):
        yield value
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _reals(inner)


def _real(value: float, digits: int) -> str:
    mantissa, e, exponent = f"{value:.{digits}g}".partition("e")
    if e:
        return f"{mantissa}e{int(exponent)}"
    return mantissa if "." in mantissa else f"{mantissa}.0"


def _lines(value: Any, digits: int, margin: str) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        value = {"float": str(value)}  # as the step has it, since JSON has no such number
    if isinstance(value, float):
        return _real(value, digits)
    if not value or not isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False)
    inner = margin + "  "
    if isinstance(value, list):
        begin, end, items = "[", "]", [_lines(item, digits, inner) for item in value]
    else:
        begin, end, items = "{", "}", [f"{json.dumps(key, ensure_ascii=False)}: {_lines(item, digits, inner)}"
                                       for key, item in sorted(value.items())]
    return f"{begin}\n{inner}" + f",\n{inner}".join(items) + f"\n{margin}{end}"


def text(value: Any) -> str:
    """JSON with sorted keys. All reals are rounded to the same number of digits, at least 15 and enough for each of
    them to read back unchanged."""
    needed = (next(n for n in (15, 16, 17) if float(f"{real:.{n}g}") == real) for real in _reals(value))
    digits = max(needed, default=15)
    return _lines(value, digits, "") + "\n"


def config_of(config: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """config.json: the model's configuration, with the keys that transformers requires.

    Args:
        dtype: the type of the model's tensors, such as "F32".
    """
    made = dict(config)
    architecture = _ARCHITECTURES.get(str(config.get("model_type")))
    if architecture and "architectures" not in made:
        made["architectures"] = [architecture]
    keys = [key for key in ("dtype", "torch_dtype") if key in made] or ["torch_dtype"]
    return {**made, **dict.fromkeys(keys, _DTYPES.get(dtype, "float32"))}


def _vocabulary() -> dict[str, int]:
    """The bytes as tokens: as in GPT-2's tokenizer, characters from U+0100 on represent bytes that are not visible."""
    found, other = {}, 0x100
    for byte in range(_BYTES):
        is_seen = 0x21 <= byte <= 0x7e or byte >= 0xa1 and byte != 0xad
        found[chr(byte if is_seen else other)] = byte
        other += not is_seen
    return found


def byte_tokenizer() -> dict[str, Any]:
    """The files of a tokenizer whose tokens are the bytes, by name."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    model: dict[str, Any] = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
        "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": _vocabulary(), "merges": []}
    return {
        "tokenizer.json": {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": level, "post_processor": None, "decoder": level, "model": model},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}}
