"""io.prometheus.client as google.protobuf reads it, from a description made here.

No package brings the definitions, and they are few. Field numbers and types are those of metrics.proto
of prometheus/client_model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal.decoder import _DecodeVarint32
from google.protobuf.unknown_fields import UnknownFieldSet

if TYPE_CHECKING:
    from google.protobuf.message import Message

_FIELDS = {
    "LabelPair": "1 name string, 2 value string",
    "Gauge": "1 value double",
    "Counter": "1 value double, 2 exemplar Exemplar",
    "Timestamp": "1 seconds int64, 2 nanos int32",
    "Exemplar": "1 label LabelPair*, 2 value double, 3 timestamp Timestamp",
    "Bucket": "1 cumulative_count uint64, 2 upper_bound double, 3 exemplar Exemplar",
    "BucketSpan": "1 offset sint32, 2 length uint32",
    "Histogram": "1 sample_count uint64, 2 sample_sum double, 3 bucket Bucket*, 5 schema sint32, "
    "6 zero_threshold double, 7 zero_count uint64, 12 positive_span BucketSpan*, "
    "13 positive_delta sint64*",
    "Metric": "1 label LabelPair*, 2 gauge Gauge, 3 counter Counter, 7 histogram Histogram",
    "MetricFamily": "1 name string, 2 help string, 3 type int32, 4 metric Metric*, 5 unit string",
}


def _make() -> type[Message]:
    file = descriptor_pb2.FileDescriptorProto(
        name="distdbg_test_metrics.proto", package="io.prometheus.client", syntax="proto3"
    )
    field_type = descriptor_pb2.FieldDescriptorProto
    for name, words in _FIELDS.items():
        message = file.message_type.add(name=name)
        for one in words.split(", "):
            number, field, kind = one.split()
            made = message.field.add(name=field, number=int(number))
            made.label = field_type.LABEL_REPEATED if "*" in kind else field_type.LABEL_OPTIONAL
            kind = kind.removesuffix("*")
            if kind in _FIELDS:
                made.type = field_type.TYPE_MESSAGE
                made.type_name = f".io.prometheus.client.{kind}"
            else:
                made.type = getattr(field_type, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindMessageTypeByName("io.prometheus.client.MetricFamily")
    return message_factory.GetMessageClass(found)


MetricFamily = _make()


def read(data: bytes) -> dict[str, Message]:
    """The families of a delimited stream, by name."""
    found = {}
    at = 0
    while at < len(data):
        size, at = _DecodeVarint32(data, at)
        family = MetricFamily.FromString(data[at : at + size])
        assert not len(UnknownFieldSet(family))
        found[family.name] = family
        at += size
    return found
