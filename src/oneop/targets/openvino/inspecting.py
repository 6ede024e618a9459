"""What OpenVINO makes of an operator in a file."""

from oneop.inspection.judging import (
    Question,
    Runtime,
    Verdict,
    by_library,
    how_to_add_functions,
    how_to_build,
    joined,
    rewritten,
    unknown_libraries,
)

_BUILT_IN = {
    "com.microsoft": (
        """Attention BiasAdd BiasGelu BifurcationDetector DequantizeLinear DynamicQuantizeLSTM
        DynamicQuantizeMatMul EmbedLayerNormalization FastGelu FusedConv FusedGemm FusedMatMul GatherBlockQuantized
        GatherND Gelu GroupNorm GroupQueryAttention MatMulIntegerToFloat MatMulNBits MultiHeadAttention Pad QLinearAdd
        QLinearAveragePool QLinearConcat QLinearLeakyRelu QLinearMul QLinearReduceMean QLinearSigmoid QLinearSoftmax
        QLinearWhere QuantizeLinear QuickGelu Range RotaryEmbedding SimplifiedLayerNormalization SkipLayerNormalization
        SkipSimplifiedLayerNormalization Trilu"""
    ),
    "ai.onnx.ml": "Normalizer",
    "org.openvinotoolkit": (
        """DeformableConv2D DetectionOutput ExperimentalDetectronDetectionOutput
        ExperimentalDetectronGenerateProposalsSingleImage ExperimentalDetectronGroupNorm
        ExperimentalDetectronPriorGridGenerator ExperimentalDetectronROIFeatureExtractor ExperimentalDetectronTopKROIs
        FakeQuantize GenerateProposals GroupNorm Normalize PriorBox PriorBoxClustered"""
    ),
    "mmdeploy": "MMCVRoIAlignRotated NMSRotated",
}
BUILT_IN = {(domain, name) for domain, names in _BUILT_IN.items() for name in names.split()}
"""Operators outside the standard that the ONNX front end of OpenVINO 2026.4 converts."""


def judge(question: Question) -> Verdict:
    """The front end does not take functions apart: a node needs a converter, or has to be inlined."""
    domain, kind, _ = question.operator.identifier
    given = by_library(question)
    if given is not None:
        return given
    if (domain, kind) in BUILT_IN:
        return Verdict("kernel", "its ONNX front end converts it")
    if (unknown := unknown_libraries(question)) != "":
        return Verdict("unknown", f"oneop did not build {unknown}, which may hold it", "read the file with it, and see")
    build = f"{how_to_build(question, 'openvino')}, and add the library with Core.add_extension"
    if question.function is not None:
        inline = rewritten(question, "--inline")
        if question.blocked:
            return Verdict(
                "no",
                f"its ONNX front end takes no functions apart, and this one calls {', '.join(question.blocked[:3])}",
                joined(build, f"make {question.blocked[0]} run and {inline}"),
            )
        return Verdict(
            "no",
            "its ONNX front end takes no functions apart",
            joined(inline, 'export again with fallback="inline"', build),
        )
    if domain in ("com.microsoft", "ai.onnx.ml", ""):
        return Verdict("no", f"OpenVINO 2026.4 has no {question.title}", "export the model again without it")
    functions = how_to_add_functions(question)
    return Verdict(
        "no",
        "no converter, and no function in the file",
        joined(build, functions and f"{functions}, then --inline"),
    )


RUNTIME = Runtime("openvino", "OpenVINO", ("create_extensions",), ("openvino",), judge)
