"""Build the weightless graph of all-MiniLM-L6-v2 that ships as `backscroll/embedders/minilm.onnx`.

The graph names its weights and holds none of them: the embedder reads them from `model.safetensors`,
quantizes the matrices and hands them to ONNX Runtime as external initializers. So the package carries a
few KB instead of 23 MB, and needs neither PyTorch nor `onnx` to run. The table of the words' vectors, half of the
model, is not part of the graph: the embedder looks the rows up in the file and gives them as the input.

The file is the same byte for byte on every run: `python scripts/build_minilm_graph.py --check` says whether
the shipped one is what this script makes. Needs the package `onnx` (measured with 1.23.2).
"""

import argparse
import sys
from pathlib import Path

from onnx import NodeProto, TensorProto, helper

LAYERS = 6
HEADS = 12
WIDTH = 384  # of a token's vector
INNER = 1536  # of the feed-forward part
EPSILON = 1e-12  # of layer normalization, as in the model's config.json
MICROSOFT = "com.microsoft"  # the domain of ONNX Runtime's fused operators
OPSET = 18
IR_VERSION = 9  # what opset 18 came with; older runtimes read it too

TARGET = Path(__file__).parent.parent / "src" / "backscroll" / "embedders" / "minilm.onnx"


def external(name: str, kind: int, shape: tuple[int, ...]) -> TensorProto:
    """A weight that the embedder gives by its name when it opens the graph."""
    tensor = TensorProto(name=name, data_type=kind, dims=shape, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="model.safetensors")
    return tensor


def linear(source: str, name: str) -> NodeProto:
    """Quantize the rows given by one scale, multiply in integers, scale back and add the bias."""
    weights = [f"{name}.weight", f"{name}.scale", "", f"{name}.bias"]
    return helper.make_node("DynamicQuantizeMatMul", [source, *weights], [name], domain=MICROSOFT)


def add_and_normalize(source: str, residual: str, name: str) -> NodeProto:
    """Layer normalization of the sum of a part's output and its input."""
    inputs = [source, residual, f"{name}.weight", f"{name}.bias"]
    return helper.make_node("SkipLayerNormalization", inputs, [name], domain=MICROSOFT, epsilon=EPSILON)


def layer_nodes(layer: int, source: str) -> list[NodeProto]:
    """One transformer layer: attention, then feed-forward; its output is `{layer}.output_norm`."""
    attention = [f"{layer}.quantized", f"{layer}.qkv.weight", f"{layer}.qkv.bias"]
    attention += [f"{layer}.step", f"{layer}.qkv.scale", "", f"{layer}.zero", "no_offset"]
    return [
        helper.make_node("DynamicQuantizeLinear", [source], [f"{layer}.quantized", f"{layer}.step", f"{layer}.zero"]),
        helper.make_node("QAttention", attention, [f"{layer}.heads"], domain=MICROSOFT, num_heads=HEADS),
        linear(f"{layer}.heads", f"{layer}.attention"),
        add_and_normalize(f"{layer}.attention", source, f"{layer}.attention_norm"),
        linear(f"{layer}.attention_norm", f"{layer}.inner"),
        helper.make_node("Gelu", [f"{layer}.inner"], [f"{layer}.gelu"], domain=MICROSOFT),
        linear(f"{layer}.gelu", f"{layer}.output"),
        add_and_normalize(f"{layer}.output", f"{layer}.attention_norm", f"{layer}.output_norm"),
    ]


def pooling_nodes(source: str) -> list[NodeProto]:
    """The mean over all tokens, at length 1. There is no mask: a text comes alone, without padding."""
    return [
        helper.make_node("ReduceMean", [source, "tokens_axis"], ["mean"], keepdims=0),
        helper.make_node("LpNormalization", ["mean"], ["vector"], axis=-1, p=2),
    ]


def linear_weights(name: str, rows: int, columns: int) -> list[TensorProto]:
    return [
        external(f"{name}.weight", TensorProto.INT8, (rows, columns)),
        external(f"{name}.scale", TensorProto.FLOAT, (columns,)),
        external(f"{name}.bias", TensorProto.FLOAT, (columns,)),
    ]


def norm_weights(name: str) -> list[TensorProto]:
    return [external(f"{name}.{part}", TensorProto.FLOAT, (WIDTH,)) for part in ("weight", "bias")]


def layer_weights(layer: int) -> list[TensorProto]:
    return [
        *linear_weights(f"{layer}.qkv", WIDTH, 3 * WIDTH),
        *linear_weights(f"{layer}.attention", WIDTH, WIDTH),
        *norm_weights(f"{layer}.attention_norm"),
        *linear_weights(f"{layer}.inner", WIDTH, INNER),
        *linear_weights(f"{layer}.output", INNER, WIDTH),
        *norm_weights(f"{layer}.output_norm"),
    ]


def build() -> bytes:
    """The graph as the bytes of an ONNX file."""
    norm = ["embeddings", "norm.weight", "norm.bias"]
    nodes = [helper.make_node("LayerNormalization", norm, ["norm"], axis=-1, epsilon=EPSILON)]
    weights = [
        helper.make_tensor("tokens_axis", TensorProto.INT64, [1], [1]),
        helper.make_tensor("no_offset", TensorProto.INT8, [], [0]),  # symmetric weights: their zero is zero
        *norm_weights("norm"),
    ]
    source = "norm"
    for layer in range(LAYERS):
        nodes += layer_nodes(layer, source)
        weights += layer_weights(layer)
        source = f"{layer}.output_norm"
    nodes += pooling_nodes(source)
    graph = helper.make_graph(
        nodes,
        "all-MiniLM-L6-v2",
        [helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, [1, "tokens", WIDTH])],
        [helper.make_tensor_value_info("vector", TensorProto.FLOAT, [1, WIDTH])],
        initializer=weights,
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="backscroll")
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the shipped file differs")
    arguments = parser.parse_args()
    content = build()
    if arguments.check:
        same = TARGET.is_file() and TARGET.read_bytes() == content
        print(f"{TARGET.name}: {'as built' if same else 'differs from what this script builds'}")
        return 0 if same else 1
    TARGET.write_bytes(content)
    print(f"{TARGET.name}: {len(content):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
