"""What TensorRT's ONNX parser makes of an operator in a file. These are the rules of release 10's parser."""

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
from oneop.targets.plugins import COUNTS_FIELD, PLUGIN_NAMESPACE, PLUGIN_VERSION
from oneop.targets.tensorrt.names import TAKEN


def judge(question: Question) -> Verdict:
    """Its own importers go first, then a function of the file, then a plugin."""
    kind = question.operator.identifier.type
    if kind in TAKEN:
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
    """The parser finds a plugin by two attributes, or their defaults, and hands over the inputs that are there."""
    again = 'export again with fallback="none", which writes what the plugin needs to know'
    for node in question.operator.nodes:
        texts = {item.name: item.value for item in node.attributes if item.kind == "string"}
        version, namespace = (
            texts.get("plugin_version", PLUGIN_VERSION),
            texts.get("plugin_namespace", PLUGIN_NAMESPACE),
        )
        if (version, namespace) != (PLUGIN_VERSION, PLUGIN_NAMESPACE):
            return Verdict(
                "no",
                f"node {node.name!r} asks for version {version!r} in namespace {namespace!r}, and {given.because} has "
                f"version {PLUGIN_VERSION!r} in namespace {PLUGIN_NAMESPACE!r}",
                again,
            )
        names = [value.name for value in node.inputs]
        if COUNTS_FIELD not in texts and "" in names[: len([*filter(None, names)])]:
            return Verdict("no", f"node {node.name!r} does not say which of its inputs is absent", again)
    return given


RUNTIME = Runtime("tensorrt", "TensorRT", ("getCreators",), (), judge)
