"""GGUF files of decoders with gated MLPs or experts: config, tokenizer and names."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pyturbo._messages import shown
from pyturbo.checkpoint.checkpoint import Checkpoint
from pyturbo.checkpoint.file_layout import FileLayout, Gguf
from pyturbo.checkpoint.gguf import read_header
from pyturbo.checkpoint.gguf_weights import GgufWeights
from pyturbo.checkpoint.sampling import SamplingDefaults, gguf_sampling
from pyturbo.checkpoint.tokenizer import TokenizerSource, token_ids
from pyturbo.errors import FormatError

_TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER = re.compile(r"blk\.(\d{1,6})\.(\w+)\.(weight|bias)")
_TOP = re.compile(r"(\w+)\.(weight|bias)")
_NAME = re.compile(r"[\w.-]{1,64}")
_ROPE_FACTORS = "rope_freqs.weight"


class GgufCheckpoint(Checkpoint):
    """One GGUF file."""

    type_entry = "general.architecture"

    def __init__(self, path: Path) -> None:
        header = read_header(path)
        super().__init__(path, header.tensors)
        self._fields = _Fields(path, header.metadata)
        self._fields.architecture = self._fields.name("general.architecture")
        self.layers_entry = f"{self.model_type}.block_count"
        if self._fields.integer("split.count", 0, smallest=0) > 1:
            raise FormatError(f"{path}: split.count: expected a model in one file, got one of several parts")
        self.tokenizer = _tokenizer(self._fields)
        self.sampling = gguf_sampling(header.metadata)

    @property
    def model_type(self) -> str:
        return self._fields.architecture

    def reads(self, layout: FileLayout) -> bool:
        return layout.gguf is not None

    def weights(self, layout: FileLayout | None = None, values: bool = True) -> GgufWeights:
        layout = layout or FileLayout()
        gguf = layout.gguf or Gguf()
        names = {}
        for raw in self:
            name = model_name(raw, gguf.names)
            if name is not None:
                names[name] = raw
        permuted_heads = None
        if gguf.adjacent_pairs:
            permuted_heads = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        return GgufWeights(self, names, layout, permuted_heads, values)

    @cached_property
    def config(self) -> dict[str, Any]:  # type: ignore[override]
        """Return the entries of config.json, by the names that transformers gives them.

        They are read when first asked for, because the entries of a file depend on its architecture.
        """
        fields = self._fields
        hidden = fields.integer("{}.embedding_length")
        heads = fields.integer("{}.attention.head_count")
        head_dim = fields.integer("{}.attention.key_length", max(1, hidden // heads))
        if fields.integer("{}.attention.value_length", head_dim) != head_dim or head_dim % 2:
            raise FormatError(
                f"{self.path}: expected even heads of one size for keys and values, got {head_dim}"
            )
        config: dict[str, Any] = {
            "model_type": self.model_type,
            "hidden_size": hidden,
            "num_hidden_layers": fields.integer("{}.block_count"),
            "intermediate_size": fields.integer("{}.feed_forward_length"),
            "num_attention_heads": heads,
            "num_key_value_heads": fields.integer("{}.attention.head_count_kv", heads),
            "head_dim": head_dim,
            "rms_norm_eps": fields.number("{}.attention.layer_norm_rms_epsilon"),
            "rope_theta": fields.number("{}.rope.freq_base", 10000.0),
            "max_position_embeddings": fields.integer("{}.context_length"),
            "vocab_size": fields.integer("{}.vocab_size", self._info("token_embd.weight").shape[0]),
            "tie_word_embeddings": "output.weight" not in self,
        }
        if experts := fields.integer("{}.expert_count", 0, smallest=0):
            # Configurations of transformers use either name.
            config |= {"num_experts": experts, "num_local_experts": experts}
            config["num_experts_per_tok"] = fields.integer("{}.expert_used_count")
        rotary_dim = fields.integer("{}.rope.dimension_count", head_dim)
        if rotary_dim != head_dim:
            config["partial_rotary_factor"] = rotary_dim / head_dim
        scaling = self._rope_scaling(config["max_position_embeddings"], rotary_dim // 2)
        return config if scaling is None else config | {"rope_scaling": scaling}

    def _rope_scaling(self, context: int, pairs: int) -> dict[str, Any] | None:
        fields = self._fields
        kind = fields.text("{}.rope.scaling.type", "none")
        if _ROPE_FACTORS in self:
            # The file has a divisor for each frequency. In transformers that is "longrope", for any context.
            info = self[_ROPE_FACTORS]
            if info.dtype != "F32" or info.shape != (pairs,):
                raise FormatError(
                    f"{info}: expected {pairs} numbers in F32, one for each rotary pair, "
                    f"got {list(info.shape)} in {info.dtype}"
                )
            factors = self.read(_ROPE_FACTORS).tolist()
            if not all(math.isfinite(factor) and factor > 0 for factor in factors):
                raise FormatError(f"{self[_ROPE_FACTORS]}: expected positive numbers")
            return {
                "rope_type": "longrope",
                "short_factor": factors,
                "long_factor": factors,
                "attention_factor": 1.0,
                "original_max_position_embeddings": context,
            }
        if kind == "none":
            return None
        if kind not in ("linear", "yarn"):
            raise FormatError(
                f"{self.path}: rope.scaling.type: expected none, linear or yarn, got {shown(kind)}"
            )
        scaling: dict[str, Any] = {"rope_type": kind, "factor": fields.number("{}.rope.scaling.factor")}
        if kind == "yarn":
            original = fields.integer("{}.rope.scaling.original_context_length")
            scaling["original_max_position_embeddings"] = original
        return scaling


def read_text_parts(path: Path) -> tuple[TokenizerSource, SamplingDefaults]:
    """Return the tokenizer and the sampling defaults of a GGUF file, which need not have tensors."""
    metadata = read_header(path).metadata
    return _tokenizer(_Fields(path, metadata)), gguf_sampling(metadata)


def model_name(raw: str, more: Mapping[str, str]) -> str | None:
    """Return the MLX name of a tensor, None if models do not use it.

    `more` has names of modules of a layer in addition to the common ones, by their names in the file.
    """
    if match := _LAYER.fullmatch(raw):
        layer, name, suffix = match.groups()
        module = more.get(name, _LAYER_NAMES.get(name))
        return None if module is None else f"model.layers.{int(layer)}.{module}.{suffix}"
    if (match := _TOP.fullmatch(raw)) and match[1] in _TOP_NAMES:
        return f"{_TOP_NAMES[match[1]]}.{match[2]}"
    return None


class _Fields:
    """Metadata, checked for the types it must have; "{}" in a key stands for the architecture."""

    def __init__(self, path: Path, metadata: dict[str, Any]) -> None:
        self.path = path
        self.architecture = ""
        self._metadata = metadata

    def integer(self, key: str, default: int | None = None, smallest: int = 1) -> int:
        value = self._value(key, default)
        if isinstance(value, np.ndarray) and value.size and (value == value[0]).all():
            value = value[0].item()  # the file has one value for each layer
        if type(value) is not int or not smallest <= value < 2**31:
            self._refuse(key, f"a number from {smallest} on", value)
        return int(value)

    def number(self, key: str, default: float | None = None) -> float:
        value = self._value(key, default)
        if type(value) not in (int, float) or not (math.isfinite(value) and value > 0):
            self._refuse(key, "a positive number", value)
        return float(value)

    def text(self, key: str, default: str | None = None) -> str:
        value = self._value(key, default)
        if not isinstance(value, str):
            self._refuse(key, "text", value)
        return str(value)

    def name(self, key: str) -> str:
        value = self.text(key)
        if not _NAME.fullmatch(value):
            self._refuse(key, "a short name", value)
        return value

    def flag(self, key: str) -> bool | None:
        value = self._metadata.get(key)
        if value is not None and not isinstance(value, bool):
            self._refuse(key, "true or false", value)
        return value

    def texts(self, key: str) -> list[str]:
        value = self._metadata.get(key, [])
        if not isinstance(value, list):
            self._refuse(key, "a list of texts", value)
        return list(value)

    def numbers(self, key: str, kinds: str) -> Any:
        value = self._metadata.get(key, np.empty(0, np.int32))
        if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds + "iu":
            self._refuse(key, "a list of numbers", value)
        return value.tolist()

    def token_id(self, key: str, count: int) -> int | None:
        ids = token_ids(self.path, key, self._metadata.get(key))
        if any(i >= count for i in ids):
            self._refuse(key, f"a token below {count}", ids)
        return ids[0] if ids else None

    def _value(self, key: str, default: Any) -> Any:
        return self._metadata.get(key.replace("{}", self.architecture), default)

    def _refuse(self, key: str, expected: str, value: Any) -> None:
        got = "nothing" if value is None else shown(value)
        raise FormatError(
            f"{self.path}: {key.replace('{}', self.architecture)}: expected {expected}, got {got}"
        )


def _tokenizer(fields: _Fields) -> TokenizerSource:
    tokens = fields.texts("tokenizer.ggml.tokens")
    scores = fields.numbers("tokenizer.ggml.scores", "f")
    types = fields.numbers("tokenizer.ggml.token_type", "")
    for name, values in (("scores", scores), ("token_type", types)):
        if values and len(values) != len(tokens):
            raise FormatError(
                f"{fields.path}: tokenizer.ggml.{name}: expected {len(tokens)} values, got {len(values)}"
            )
    ids = {
        name: fields.token_id(f"tokenizer.ggml.{name}_token_id", len(tokens))
        for name in ("bos", "eos", "eot", "eom", "unknown", "padding")
    }
    ends = (ids[name] for name in ("eos", "eot", "eom"))
    return TokenizerSource(
        kind="gguf",
        chat_template=fields.text("tokenizer.chat_template", "") or None,
        bos_id=ids["bos"],
        eos_ids=tuple(dict.fromkeys(i for i in ends if i is not None)),
        model=fields.text("tokenizer.ggml.model", "") or None,
        pre=fields.text("tokenizer.ggml.pre", "") or None,
        tokens=tokens,
        scores=scores,
        types=types,
        merges=fields.texts("tokenizer.ggml.merges"),
        unknown_id=ids["unknown"],
        padding_id=ids["padding"],
        add_bos=fields.flag("tokenizer.ggml.add_bos_token"),
        add_eos=fields.flag("tokenizer.ggml.add_eos_token"),
        add_space_prefix=fields.flag("tokenizer.ggml.add_space_prefix"),
    )
