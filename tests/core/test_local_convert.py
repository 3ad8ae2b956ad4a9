"""The conversion of the default weights: names, and the order of the rows that the rotary embedding pairs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstay.local.convert_smollm2 import config_of, name_of, unpaired


@pytest.mark.parametrize(
    ("gguf", "transformers"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output_norm.weight", "model.norm.weight"),
        ("blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight"),
        ("blk.29.attn_output.weight", "model.layers.29.self_attn.o_proj.weight"),
        ("blk.7.attn_norm.weight", "model.layers.7.input_layernorm.weight"),
        ("blk.7.ffn_norm.weight", "model.layers.7.post_attention_layernorm.weight"),
        ("blk.7.ffn_down.weight", "model.layers.7.mlp.down_proj.weight"),
    ],
)
def test_a_tensor_has_its_name_in_transformers(gguf: str, transformers: str) -> None:
    assert name_of(gguf) == transformers


def test_the_rows_of_a_small_head_by_hand() -> None:
    # One head of four rows: GGUF has the two halves in turns, transformers one after the other.
    gguf = np.array([[0], [2], [1], [3]])
    assert unpaired(gguf, 1).tolist() == [[0], [1], [2], [3]]


@given(heads=st.integers(1, 9), pairs=st.integers(1, 32), columns=st.integers(1, 5))
def test_the_order_of_the_rows_is_that_before_the_export(heads: int, pairs: int, columns: int) -> None:
    rows = heads * pairs * 2
    original = np.arange(rows * columns).reshape(rows, columns)
    exported = np.empty_like(original)
    for head in range(heads):
        for pair in range(pairs):
            for half in range(2):
                exported[head * pairs * 2 + pair * 2 + half] = original[head * pairs * 2 + half * pairs + pair]
    assert unpaired(exported, heads).tolist() == original.tolist()


def test_the_configuration_has_what_the_file_says() -> None:
    fields = {
        "llama.embedding_length": 576,
        "llama.attention.head_count": 9,
        "llama.attention.head_count_kv": 3,
        "llama.block_count": 30,
        "llama.feed_forward_length": 1536,
        "llama.context_length": 8192,
        "llama.vocab_size": 49152,
        "llama.rope.freq_base": 100000.0,
        "llama.attention.layer_norm_rms_epsilon": 9.999999747378752e-06,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.padding_token_id": 2,
    }
    told = config_of(fields)
    assert told["head_dim"] == 64
    assert told["rms_norm_eps"] == 1e-5
    assert told["rope_parameters"] == {"rope_type": "default", "rope_theta": 100000.0}
    assert (told["num_key_value_heads"], told["max_position_embeddings"]) == (3, 8192)
