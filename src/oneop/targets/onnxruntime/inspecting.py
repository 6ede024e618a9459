"""What ONNX Runtime makes of an operator in a file."""

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

_ON_CPU = {
    "com.microsoft": (
        """Attention AttnLSTM BeamSearch BiasGelu BifurcationDetector BranchwiseRMSNorm CDist
        CausalConvWithState ConvTransposeWithDynamicPads CropAndResize DecoderMaskedMultiHeadAttention DequantizeLinear
        DynamicQuantizeLSTM DynamicQuantizeMatMul DynamicTimeWarping EmbedLayerNormalization EngramGate ExpandDims
        FastGelu FusedConv FusedGemm FusedMatMul GatedAdd GatedDeltaNet GatedRMSNorm GatherBlockQuantized GatherND
        GatherPacked Gelu GreedySearch GridSample GroupQueryAttention HyperConnectionPostMix HyperConnectionPreMix
        Inverse LinearAttention LinearAttentionGate MRotaryEmbedding MatMulBnb4 MatMulFpQ4 MatMulInteger16
        MatMulIntegerToFloat MatMulNBits MaxpoolWithMask MoE MoEGroupRouter MultiHeadAttention MurmurHash3
        NGramHashMapping NGramRepeatBlock NhwcMaxPool Pad QAttention QEmbedLayerNormalization QGemm QLinearAdd
        QLinearAveragePool QLinearConcat QLinearConv QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul QLinearSigmoid
        QLinearSoftmax QLinearWhere QMoE QuantizeLinear QuickGelu Range RotaryEmbedding SampleOp Sampling ScaledSiLU
        SkipLayerNormalization SkipSimplifiedLayerNormalization SparseAttention SparseToDenseMatMul Tokenizer
        TransposeMatMul Trilu UnfoldTensor Unique VarlenCausalConvWithState VarlenNGramHashMapping WhisperBeamSearch
        WordConvEmbedding"""
    ),
    "com.microsoft.nchwc": (
        """AveragePool Conv GlobalAveragePool GlobalMaxPool MaxPool ReorderInput ReorderOutput
        Upsample"""
    ),
    "ai.onnx.ml": (
        """ArrayFeatureExtractor Binarizer CastMap CategoryMapper DictVectorizer FeatureVectorizer Imputer
        LabelEncoder LinearClassifier LinearRegressor Normalizer OneHotEncoder SVMClassifier SVMRegressor Scaler
        TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor ZipMap"""
    ),
}
_ELSEWHERE = {
    "com.microsoft": (
        """BiasAdd BiasDropout BiasSoftmax BiasSplitGelu BitmaskBiasDropout BitmaskDropout ComplexMul
        ComplexMulConj ConvStateReplay DecoderAttention DecoderMaskedSelfAttention DequantizeBFP DequantizeWithOrder
        DynamicSparseAttention EPContext FusedMatMulActivation GatedDeltaNetStateReplay GatedRelativePositionBias
        GemmFastGelu GemmFloat8 GemmaRotaryEmbedding GroupNorm HyperConnectionLowRankMix Irfft IsAllFinite
        LongformerAttention Mamba2Verify MatMulBlockQuantizedFp4Weight MatMulBlockQuantizedFp8Weight MatMulNBitsMlp
        MatMulNBitsQLoRA MatMulNBitsQkv MatMulPacked MoEPacked MulInteger NhwcConv NhwcFusedConv PackedAttention
        PackedMultiHeadAttention PackedSparseAttentionIndexer PackedSparseAttentionIndexerMerge PagedAttention
        QLinearReduceMean QOrderedAttention QOrderedGelu QOrderedLayerNormalization QOrderedLongformerAttention
        QOrderedMatMul QuantizeBFP QuantizeWithOrder RMSNormRotary ReduceSumInteger RelativePositionBias RemovePadding
        RestorePadding Rfft RouterGateUpProj SkipGroupNorm Snpe SparseAttentionIndexer SparsePagedAttention
        SpeculativePrefixCommit SwiGLU TorchEmbedding"""
    ),
    "com.ms.internal.nhwc": (
        """AveragePool BatchNormalization Conv ConvTranspose DepthToSpace GlobalAveragePool
        GlobalLpPool GlobalMaxPool GridSample InstanceNormalization LRN LpPool MaxPool MaxUnpool QLinearAveragePool
        QLinearConv QLinearConvTranspose Resize SpaceToDepth"""
    ),
}
ON_CPU = {(domain, name) for domain, names in _ON_CPU.items() for name in names.split()}
"""Operators of its own that ONNX Runtime 1.32 has kernels of on the CPU."""

ELSEWHERE = {(domain, name) for domain, names in _ELSEWHERE.items() for name in names.split()}
"""Those that it knows, and has kernels of in builds for other devices only."""

EXTENSIONS = ("ai.onnx.contrib", "com.microsoft.extensions")


def judge(question: Question) -> Verdict:
    """A kernel goes before a function. Once an operator is registered, nothing falls back to the function."""
    domain, kind, _ = question.operator.identifier
    given = by_library(question)
    if given is not None:
        return given
    if (domain, kind) in ON_CPU:
        return Verdict("kernel", "built in")
    if question.function is not None:
        return _by_function(question)
    if (domain, kind) in ELSEWHERE:
        return Verdict("kernel", "built in, in builds for a GPU or another device; there is no kernel on the CPU")
    if (unknown := unknown_libraries(question)) != "":
        return Verdict("unknown", f"oneop did not build {unknown}, which may hold it", "load the file with it, and see")
    if domain in EXTENSIONS:
        return Verdict(
            "no",
            "onnxruntime-extensions has it",
            "pip install onnxruntime-extensions, and register the library that its get_library_path() names",
        )
    if domain in ("", "com.microsoft", "ai.onnx.ml"):
        return Verdict("no", f"ONNX Runtime 1.32 has no {question.title}", "export the model again without it")
    return Verdict(
        "no",
        "no kernel, and no function in the file",
        joined(f"{how_to_build(question, 'onnxruntime')}, and register the library", how_to_add_functions(question)),
    )


def _by_function(question: Question) -> Verdict:
    faster = how_to_build(question, "onnxruntime") if question.definition and question.definition.has_kernels else None
    if question.blocked:
        return Verdict(
            "no",
            f"the function calls {', '.join(question.blocked[:3])}, which does not run",
            joined(f"make {question.blocked[0]} run", faster),
        )
    if question.overloaded:
        return Verdict(
            "function",
            "the function in the file, from ONNX Runtime 1.24 on: older ones ignore overloads, and take the last body "
            "for every node",
            f"for older ones: {rewritten(question, '--inline')}",
        )
    return Verdict("function", "the function in the file", f"natively: {faster}" if faster else None)


RUNTIME = Runtime("onnxruntime", "ONNX Runtime", ("RegisterCustomOps",), ("onnxruntime",), judge)
