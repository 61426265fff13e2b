"""Writes the schema of ONNX model files, as the pinned onnx package knows it, to the given path.

The output is a serialized google.protobuf.FileDescriptorSet with the one file onnx-ml.proto.
"""

import sys

from google.protobuf import descriptor_pb2
from onnx import onnx_ml_pb2

schema = descriptor_pb2.FileDescriptorSet()
onnx_ml_pb2.DESCRIPTOR.CopyToProto(schema.file.add())
with open(sys.argv[1], "wb") as out:
    out.write(schema.SerializeToString())
