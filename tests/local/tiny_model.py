"""A model of two small layers with random weights: it counts tokens and blocks as a real one, and costs little."""

import json
import shutil
from pathlib import Path

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
    "dtype": "float32",
    "head_dim": 32,  # the least that attention on a CPU takes
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 128,
    "max_position_embeddings": 8192,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-05,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
    "tie_word_embeddings": True,
    "vocab_size": 49152,
}
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja")
ARGUMENTS = ("--load-format", "dummy")  # of vLLM: the folder holds no weights


def make_tiny_model(weights: Path, folder: Path) -> Path:
    """Make a folder that vLLM serves with the arguments above.

    Args:
        weights: The folder of converted models in the local model's home: its tokenizer and template are taken.
        folder: What to make; the model is called after it.
    """
    (source,) = sorted(weights.glob("smollm2-*"))
    folder.mkdir(parents=True)
    for name in TOKENIZER:
        shutil.copy(source / name, folder / name)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n", encoding="utf-8")
    return folder
