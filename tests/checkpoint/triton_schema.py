"""The part of Triton's schema of model configurations (model_config.proto) that is written here."""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FIELD = descriptor_pb2.FieldDescriptorProto
SCALARS = {"string": FIELD.TYPE_STRING, "int32": FIELD.TYPE_INT32, "int64": FIELD.TYPE_INT64}
TYPES = {"TYPE_BOOL": 1, "TYPE_INT64": 9, "TYPE_FP32": 11, "TYPE_FP64": 12, "TYPE_STRING": 13}
TENSOR = {"name": (1, "string"), "data_type": (2, "DataType"), "dims": (3, "int64")}
MESSAGES = {
    "ModelInput": {**TENSOR, "dims": (4, "int64")},
    "ModelOutput": TENSOR,
    "ModelConfig": {
        "name": (1, "string"),
        "max_batch_size": (4, "int32"),
        "input": (5, "ModelInput"),
        "output": (6, "ModelOutput"),
        "backend": (17, "string"),
    },
}
REPEATED = {"dims", "input", "output"}


def model_config() -> type:
    """The class of a model's configuration."""
    file = descriptor_pb2.FileDescriptorProto(name="config.proto", package="it", syntax="proto3")
    types = file.enum_type.add(name="DataType")
    types.value.add(name="TYPE_INVALID", number=0)
    for name, number in TYPES.items():
        types.value.add(name=name, number=number)
    for message, fields in MESSAGES.items():
        made = file.message_type.add(name=message)
        for name, (number, kind) in fields.items():
            label = FIELD.LABEL_REPEATED if name in REPEATED else FIELD.LABEL_OPTIONAL
            field = made.field.add(name=name, number=number, label=label)
            if kind in SCALARS:
                field.type = SCALARS[kind]
            else:
                field.type = FIELD.TYPE_ENUM if kind == "DataType" else FIELD.TYPE_MESSAGE
                field.type_name = f".it.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("it.ModelConfig"))
