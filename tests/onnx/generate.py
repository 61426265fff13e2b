"""Writes the operator test cases of the pinned onnx package as files.

    generate.py FOLDER

For each case FOLDER/CASE/model.onnx and input_I.pb, output_I.pb (serialized TensorProto,
SequenceProto or OptionalProto, named as the graph's inputs and outputs, in their order), and one line
of JSON in FOLDER/index.jsonl, sorted by case:

    {"case": "test_add", "op_type": "Add", "domain": "", "opset": 14, "expanded": false,
     "rtol": 0.001, "atol": 1e-07, "inputs": ["tensor", "tensor"], "outputs": ["tensor"],
     "operators": ["Add"]}

`op_type` is the operator under test, `operators` what the graph holds: they differ in cases whose
operator was expanded into the ones that define it.
"""

import json
import pathlib
import sys

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.model import collect_testcases as collect_models
from onnx.backend.test.case.node import collect_testcases


def proto_of(value, info):
    """`value` as the proto that `info` (the graph's ValueInfoProto) asks for, and its kind."""
    kind = info.type.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.from_list(value, info.name), "sequence"
    if kind == "optional_type":
        return numpy_helper.from_optional(value, info.name), "optional"
    if isinstance(value, onnx.TensorProto):
        tensor = onnx.TensorProto()
        tensor.CopyFrom(value)
        tensor.name = info.name
        return tensor, "tensor"
    return numpy_helper.from_array(np.asarray(value), info.name), "tensor"


def write_values(folder, prefix, values, infos):
    kinds = []
    for index, (value, info) in enumerate(zip(values, infos, strict=True)):
        proto, kind = proto_of(value, info)
        (folder / f"{prefix}_{index}.pb").write_bytes(proto.SerializeToString())
        kinds.append(kind)
    return kinds


def nodes(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                yield from nodes(inner)


def tested_operator(name, graph, known):
    """The operator that the case was written for."""
    if "_expanded" not in name and len(graph.node) == 1:
        return graph.node[0].op_type, graph.node[0].domain
    plain = name.split("_expanded")[0]
    if plain in known:
        return known[plain]
    return graph.node[-1].op_type, graph.node[-1].domain


def main():
    target = pathlib.Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    lines, known = [], {}
    # Plain cases come before their expansions, so that those find the operator.
    # Derivatives are of values of a graph, so their cases stand among those of whole models.
    models = [case for case in collect_models() if case.name.startswith("test_gradient")]
    for case in sorted([*collect_testcases(), *models], key=lambda case: ("_expanded" in case.name, case.name)):
        folder = target / case.name
        folder.mkdir(exist_ok=True)
        graph = case.model.graph
        op_type, domain = known[case.name] = tested_operator(case.name, graph, known)
        (inputs, outputs), *more = case.data_sets
        assert not more, f"{case.name} has several data sets"
        (folder / "model.onnx").write_bytes(case.model.SerializeToString())
        opsets = {opset.domain or "": opset.version for opset in case.model.opset_import}
        line = {
            "case": case.name,
            "op_type": op_type,
            "domain": domain,
            "opset": opsets.get(domain, opsets.get("", 0)),
            "expanded": "_expanded" in case.name,
            "rtol": case.rtol,
            "atol": case.atol,
            "inputs": write_values(folder, "input", inputs, graph.input),
            "outputs": write_values(folder, "output", outputs, graph.output),
            "operators": sorted({node.op_type for node in nodes(graph)}),
        }
        lines.append(line)
    lines.sort(key=lambda line: line["case"])
    # Last, so that an index means finished cases.
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (target / "index.jsonl").write_text(text)
    print(f"{len(lines)} cases of {len({line['op_type'] for line in lines})} operators")


if __name__ == "__main__":
    main()
