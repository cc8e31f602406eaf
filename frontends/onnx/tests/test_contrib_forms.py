"""Operators of ONNX Runtime with each of their attributes and optional inputs, against it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from runtime_cases import RuntimeCase, normal

from mace_core.errors import MaceError

X = "float[2,5,12] x"
VALUES = {
    "w": normal(12, 36), "b": normal(36, seed=2), "g": normal(12, seed=3), "h": normal(12, seed=4),
    "i": normal(12, seed=5), "m": normal(3, 7, 12), "c": normal(9, 2, seed=6), "s": normal(9, 2, seed=7),
}  # fmt: skip


def case(body: str, ports: str = X, **constants: object) -> RuntimeCase:
    stored = {name: VALUES[name] for name in VALUES if f" {name}" in body and f" {name}," not in f"{ports},"}
    text = body if "y = " in body or "y, " in body else f"y = com.microsoft.{body}"
    return RuntimeCase(text, ports, stored | constants)


def packed(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, shape).astype(np.uint8)


BITS = "float[2,5,40] x"
ACTIVATIONS = (
    'activation="Relu"',
    'activation="Sigmoid"',
    'activation="Tanh"',
    'activation="LeakyRelu", activation_params=[0.2]',
    'activation="HardSigmoid", activation_params=[0.3,0.4]',
    'activation="Clip", activation_params=[-0.5,0.5]',
)
CONV = {"k": normal(4, 5, 3), "a": normal(4, seed=2)}
CASES = {
    "gelu": case("Gelu(x)"),
    "bias gelu": case("BiasGelu(x, g)"),
    "fast gelu": case("FastGelu(x)"),
    "fast gelu with bias": case("FastGelu(x, g)"),
    "quick gelu": case("QuickGelu<alpha=0.7>(x)"),
    "quick gelu by default": case("QuickGelu(x)"),
    "fused product": case("FusedMatMul(x, v)", f"{X}, float[12,3] v"),
    "fused product of both": case(
        "FusedMatMul<transA=1, transB=1, alpha=2.0>(x, v)", "float[2,4,3] x, float[2,5,4] v"
    ),
    "fused product of a": case("FusedMatMul<transA=1>(x, v)", "float[2,4,3] x, float[2,4,5] v"),
    "fused product with a vector": case("FusedMatMul<transA=1>(x, v)", "float[4] x, float[4,5] v"),
    "fused product of a constant": case("FusedMatMul<transB=1>(x, m)", "float[3,5,12] x"),
    **{
        f"conv with {activation.split(chr(34))[1]}": case(f"FusedConv<{activation}>(x, k, a)", X, **CONV)
        for activation in ACTIVATIONS
    },
    "conv alone": case("FusedConv(x, k)", X, k=CONV["k"]),
    "conv and sum": case(
        'FusedConv<activation="Relu", pads=[1,1]>(x, k, a, z)', f"{X}, float[2,4,12] z", **CONV
    ),
    "gemm with LeakyRelu": case(
        'FusedGemm<activation="LeakyRelu", activation_alpha=0.3, alpha=0.5>(x, k, a)',
        "float[3,12] x",
        k=normal(12, 4),
        a=normal(4),
    ),
    "simplified norm": case("y = SimplifiedLayerNormalization<epsilon=0.1>(x, g)"),
    "simplified norm by default": case("y = SimplifiedLayerNormalization(x, g)"),
    "skip norm": case("SkipLayerNormalization(x, v, g)", f"{X}, float[2,5,12] v"),
    "skip norm with shift": case("SkipLayerNormalization<epsilon=0.1>(x, v, g, h)", f"{X}, float[2,5,12] v"),
    "skip norm with bias": case("SkipLayerNormalization(x, v, g, , i)", f"{X}, float[2,5,12] v"),
    "simplified skip norm": case("SkipSimplifiedLayerNormalization(x, v, g, i)", f"{X}, float[2,5,12] v"),
    "rotation": case("RotaryEmbedding(x, p, c, s)", p=np.array([1])),
    "rotation at each place": case("RotaryEmbedding(x, p, c, s)", p=np.arange(10).reshape(2, 5) % 9),
    "rotation of heads": case("RotaryEmbedding<num_heads=3>(x, p, c, s)", p=np.array([2])),
    "rotation of four axes": case(
        "RotaryEmbedding<interleaved=1>(x, p, c, s)", "float[2,3,5,4] x", p=np.array([3])
    ),
    "rotation of a part": case(
        "RotaryEmbedding<num_heads=2, rotary_embedding_dim=4>(x, p, c, s)", p=np.array([0])
    ),
    "attention of three": case("MultiHeadAttention<num_heads=3>(x, v, v)", f"{X}, float[2,7,12] v"),
    "attention with bias": case("MultiHeadAttention<num_heads=3>(x, v, v, b)", f"{X}, float[2,7,12] v"),
    "attention with scores": case(
        "MultiHeadAttention<num_heads=3, scale=0.7>(x, v, v, , , e)", f"{X}, float[2,7,12] v, float[2,3,5,7] e"
    ),
    "causal attention": case("MultiHeadAttention<num_heads=3, unidirectional=1>(x, x, x)"),
    "packed attention": case("Attention<num_heads=3>(x, w, b)"),
    "packed attention of sizes": case(
        "Attention<num_heads=2, qkv_hidden_sizes=[8,8,12], scale=0.3>(x, w, b)", w=normal(12, 28), b=normal(28)
    ),
    **{
        f"{bits} bits": case(
            f"MatMulNBits<K=40, N=3, bits={bits}, block_size=16>(x, q, r)",
            BITS,
            q=packed(3, 3, 2 * bits),
            r=normal(9),
        )
        for bits in (4, 8)
    },
    "bits with zero points": case(
        "MatMulNBits<K=40, N=3, bits=4, block_size=16>(x, q, r, z)", BITS,
        q=packed(3, 3, 8), r=normal(9), z=packed(6),
    ),
    "bits with real zero points": case(
        "MatMulNBits<K=40, N=3, bits=4, block_size=16>(x, q, r, z)", BITS,
        q=packed(3, 3, 8), r=normal(9), z=normal(9, seed=3),
    ),
    "bits with bias": case(
        "MatMulNBits<K=40, N=3, bits=4, block_size=16>(x, q, r, , , a)", BITS,
        q=packed(3, 3, 8), r=normal(9), a=normal(3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator_computes_what_onnx_runtime_does(name: str, tmp_path: Path) -> None:
    CASES[name].check(tmp_path / "m.onnx", rtol=1e-4, atol=2e-5)


def test_sum_of_a_skip_connection_is_an_output(tmp_path: Path) -> None:
    body = "y, , , t = com.microsoft.SkipLayerNormalization(x, v, g, h, i)"
    constants = {name: VALUES[name] for name in "ghi"}
    RuntimeCase(body, f"{X}, float[2,5,12] v", constants, outputs="y t").check(
        tmp_path / "m.onnx", 1e-4, 2e-5
    )


@pytest.mark.parametrize("bias", ["", ", , , a"])
def test_weights_with_half_scales_are_exact_and_results_rounded_once(bias: str, tmp_path: Path) -> None:
    constants = {"q": packed(3, 3, 8), "r": np.random.default_rng(5).uniform(0.5, 1, 9).astype(np.float16)}
    if bias:
        constants["a"] = normal(3).astype(np.float16)
    body = f"MatMulNBits<K=40, N=3, bits=4, block_size=16>(x, q, r{bias})"
    # Small integers, with which sums in single precision are exact in any order.
    x = np.random.default_rng(6).integers(-4, 5, (4, 40))
    model = RuntimeCase(f"y = com.microsoft.{body}", "float16[4,40] x", constants, values={"x": x})
    model.check(tmp_path / "m.onnx", rtol=0, atol=0)


def test_two_bits_are_four_in_a_byte(tmp_path: Path) -> None:
    stored, scales = packed(3, 1, 4), normal(3)
    result = case(
        "MatMulNBits<K=16, N=3, bits=2, block_size=16>(x, q, r)", "float[1,16] x", q=stored, r=scales
    )
    x = normal(1, 16, seed=4)
    y = RuntimeCase(result.body, result.ports, result.constants, values={"x": x}).compute(
        tmp_path / "m.onnx"
    )["y"]
    integers = np.stack([stored >> shift & 3 for shift in (0, 2, 4, 6)], -1).reshape(3, 16)
    np.testing.assert_allclose(y, x @ ((integers - 2.0) * scales[:, None]).T, rtol=1e-4, atol=1e-5)


V = f"{X}, float[2,5,12] v"


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (case("FusedMatMul<transBatchA=1>(x, v)", V), "transBatchA or transBatchB; export the model without"),
        (case("FusedMatMul<transBatchB=1>(x, v)", V), "transBatchA or transBatchB; export the model without"),
        (case('FusedConv<activation="Odd">(x, k)', X, k=CONV["k"]), "activation 'Odd'"),
        (
            case("a, n = com.microsoft.SkipLayerNormalization(x, v, g) y = Add(a, n)", V),
            "its mean or deviation is read",
        ),
        (
            case("a, , n = com.microsoft.SkipLayerNormalization(x, v, g) y = Add(a, n)", V),
            "its mean or deviation is read",
        ),
        (
            case("RotaryEmbedding<rotary_embedding_dim=2>(x, p, c, s)", p=np.array([1])),
            "a part of each head without num_heads",
        ),
        (case("RotaryEmbedding<scale=0.5>(x, p, c, s)", p=np.array([1])), "its scale is not 1"),
        (case("MultiHeadAttention<num_heads=3>(x)"), "packed query, key and value"),
        (case("MultiHeadAttention<num_heads=3>(x, x)"), "packed query, key and value"),
        (
            case("MultiHeadAttention<num_heads=3>(x, v, v)", f"{X}, float[2,3,5,4] v"),
            "packed query, key and value",
        ),
        (
            case("MultiHeadAttention<num_heads=3>(x, x, x, , k)", f"{X}, int32[2] k"),
            "key_padding_mask; export the model",
        ),
        (
            case("MultiHeadAttention<num_heads=3>(x, x, x, , , , k, k)", f"{X}, float[2,3,2,4] k"),
            "past_key, past_value; export",
        ),
        (
            case(
                "a, k = com.microsoft.MultiHeadAttention<num_heads=3>(x, x, x) n = ReduceSum(k) y = Add(a, n)"
            ),
            "present_key; export",
        ),
        (
            case("Attention<num_heads=3>(x, w, b, k)", f"{X}, int32[2] k"),
            "mask_index; export the model without a mask",
        ),
        (case("Attention<num_heads=3, do_rotary=1>(x, w, b)"), "do_rotary; export it with Rotary"),
        (
            case("Attention<num_heads=3>(x, w, b, , k)", f"{X}, float[2,2,3,2,4] k"),
            "past; export the model without a mask",
        ),
        (
            case("a, k = com.microsoft.Attention<num_heads=3>(x, w, b) n = ReduceSum(k) y = Add(a, n)"),
            "present; export the model",
        ),
        (
            case(
                "MatMulNBits<K=40, N=3, bits=3, block_size=16>(x, q, r)", BITS, q=packed(3, 3, 8), r=normal(9)
            ),
            "weights of 3 bits",
        ),
        (
            case(
                "MatMulNBits<K=40, N=3, bits=4, block_size=16>(x, q, r, , k)",
                BITS,
                q=packed(3, 3, 8),
                r=normal(9),
                k=np.zeros(40, np.int32),
            ),
            "an order of groups (g_idx)",
        ),
    ],
)
def test_form_that_is_not_represented_is_refused(made: RuntimeCase, message: str, tmp_path: Path) -> None:
    with pytest.raises(MaceError) as error:
        made.load(tmp_path / "m.onnx")
    assert message in str(error.value).splitlines()[0]
