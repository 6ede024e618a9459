"""What TensorRT's ONNX parser makes of an operator in a file. These are the rules of release 10's parser."""

from oneop.inspection.facts import Node
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

_PARSED = """Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization Cast
    CastLike Ceil Celu Clip Concat Constant ConstantOfShape Conv ConvTranspose Cos Cosh CumSum DeformConv
    DepthToSpace DequantizeLinear Div Dropout Einsum Elu Equal Erf Exp Expand EyeLike Flatten Floor GRU Gather
    GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool Greater GreaterOrEqual
    GridSample GroupNormalization HardSigmoid HardSwish Hardmax Identity If ImageScaler InstanceNormalization
    IsInf IsNaN LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax Loop LpNormalization
    LpPool MatMul Max MaxPool Mean MeanVarianceNormalization Min Mish Mod Mul Neg NonMaxSuppression NonZero Not
    OneHot Or PRelu Pad ParametricSoftplus Pow QuantizeLinear RNN RandomNormal RandomNormalLike RandomUniform
    RandomUniformLike Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean
    ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize ReverseSequence RoiAlign Round ScaledTanh
    Scan Scatter ScatterElements ScatterND Selu Shape Shrink Sigmoid Sign Sin Sinh Size Slice Softmax Softplus
    Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Tan Tanh ThresholdedRelu Tile TopK Transpose Trilu
    Unsqueeze Upsample Where Xor"""
PARSED = frozenset(_PARSED.split())
"""The types that the parser imports by itself. It reads a node's type without its domain."""


def judge(question: Question) -> Verdict:
    """Its own importers go first, then a function of the file, then a plugin."""
    kind = question.operator.identifier.type
    if kind in PARSED:
        return Verdict(
            "unknown",
            f"the parser reads types without their domain, and takes it for ONNX's own {kind}",
            "give the operator another onnx_name=, or compare the numbers",
        )
    if question.function is not None:
        return _by_function(question)
    return _by_plugin(question)


def _by_function(question: Question) -> Verdict:
    plugin = by_library(question)
    strip = rewritten(question, "--strip")
    inline = rewritten(question, "--inline")
    if plugin is not None:
        beside = "the function in the file, which the parser takes before the plugin"
        remedy = f"for the plugin: {strip}" if plugin.status == "kernel" else plugin.remedy
    else:
        beside, remedy = "the function in the file", f"for a plugin: {strip}"
    if question.blocked:
        return Verdict(
            "no",
            "the function in the file, which the parser takes before a plugin, calls"
            f" {', '.join(question.blocked[:3])}",
            joined(f"{strip}, for a plugin", f"make {question.blocked[0]} run"),
        )
    if (fault := _fault_of_call(question)) is not None:
        return Verdict("no", fault, joined(inline, f"for a plugin: {strip}"))
    return Verdict("function", beside, remedy)


def _fault_of_call(question: Question) -> str | None:
    """What the parser's way to call functions cannot do."""
    assert question.function is not None
    formal = question.function.inputs
    for node in question.operator.nodes:
        given = [value.name for value in node.inputs]
        if len(given) != len(formal) or "" in given:
            return "the parser calls no function with an absent input"
        for name, inner in zip(given, formal, strict=True):
            if name != inner and inner in question.file.names and not node.place.startswith("function"):
                return (
                    f"the function's input {inner} has the name of a tensor of the graph, and the parser reads that one"
                )
    return None


def _by_plugin(question: Question) -> Verdict:
    given = by_library(question)
    if given is not None and given.status == "kernel":
        return _found_by_parser(question, given)
    if given is not None:
        return given
    if (unknown := unknown_libraries(question)) != "":
        return Verdict(
            "unknown", f"oneop did not build {unknown}, which may hold it", "parse the file with it, and see"
        )
    if question.operator.identifier.domain in ("com.microsoft", "ai.onnx.ml"):
        return Verdict(
            "no", f"TensorRT has no {question.title}", "export the model again without it, or write a plugin"
        )
    build = f"{how_to_build(question, 'tensorrt')}, and load the plugin"
    return Verdict("no", "no plugin given, and no function in the file", joined(build, how_to_add_functions(question)))


def _found_by_parser(question: Question, given: Verdict) -> Verdict:
    """The parser finds a plugin by two attributes of the node, which oneop writes with fallback="none"."""
    for node in question.operator.nodes:
        if not {"plugin_version", "plugin_namespace"} <= {item.name for item in node.attributes}:
            return Verdict(
                "unknown",
                f"{given.because}, and node {_title(node)} has no plugin_version and plugin_namespace: the parser looks"
                ' for version "1" and no namespace',
                'export again with fallback="none", which writes both',
            )
    return given


def _title(node: Node) -> str:
    return repr(node.name)


RUNTIME = Runtime("tensorrt", "TensorRT", ("getCreators", "getPluginCreators"), (), judge)
