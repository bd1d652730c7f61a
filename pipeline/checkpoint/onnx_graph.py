"""The ONNX form of a merged model: raw columns in, logits and probability out, one file.

The graph is written node by node instead of traced, so that it reads strings, looks segments up by
comparisons in float64, and has the same bytes whenever it is made. `parity` proves what it says.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from pipeline.calibration.paper.paper_network import AuxiliaryNetwork
from pipeline.checkpoint.merged_model import MergedModel
from pipeline.checkpoint.serving_table import IDS, LOGIT64, MAPPED
from pipeline.core.errors import ArtifactError
from pipeline.encoding.features import LARGEST_SCALED, Encoder, LoggedScore, Scaling
from pipeline.encoding.values import SCORE_CLIP, SEPARATOR
from pipeline.encoding.vocabulary import Vocabulary
from pipeline.formats.maps import PROBABILITY_CLIP, PiecewiseLinearMap
from pipeline.model.network import LoggedScoreNetwork, Network
from pipeline.serving.predictor import NUMBER, ONNX_FORMAT, TEXT

OPSETS = {"": 20, "ai.onnx.ml": 3}
IR_VERSION = 9
LARGEST_BYTES = 2**31 - 1  # protobuf holds no more in one file
ROWS = "rows"  # name of the dynamic dimension
OUTPUTS = {
    "uncalibrated_logit": TensorProto.FLOAT,
    "calibrated_logit": TensorProto.DOUBLE,
    "probability": TensorProto.DOUBLE,
    "field_value_id": TensorProto.INT64,
    "out_of_range": TensorProto.BOOL,
}


class _Graph:
    """Nodes and constants in the order in which they are added; a name counts them."""

    def __init__(self) -> None:
        self.inputs: dict[str, onnx.ValueInfoProto] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def input(self, name: str, kind: int) -> str:
        """A column of the rows; asked for twice, it is one input."""
        self.inputs.setdefault(name, helper.make_tensor_value_info(name, kind, [ROWS]))
        return name

    def constant(self, array: Any) -> str:
        """The name of a constant."""
        name = f"constant_{len(self.constants)}"
        if isinstance(array, nn.Parameter):
            array = array.detach().numpy()
        self.constants.append(numpy_helper.from_array(np.array(array), name))
        return name

    def op(self, kind: str, *inputs: Any, result: str | None = None, **attributes: Any) -> str:
        """The name of what a node computes of inputs, which are names or constants."""
        domain = "ai.onnx.ml" if kind == "LabelEncoder" else ""
        name = result or f"{kind}_{len(self.nodes)}"
        names = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        self.nodes.append(helper.make_node(kind, names, [name], name, domain=domain, **attributes))
        return name

    def linear(self, layer: nn.Module, rows: str) -> str:
        """rows · weightᵀ + bias."""
        assert isinstance(layer, nn.Linear)
        return self.op("Gemm", rows, layer.weight, layer.bias, transB=1)


def null_text(encoder: Encoder) -> str:
    """What stands for null in a string input: a text that no vocabulary holds.

    It is made of separators, so no joint value that has it as a part is in a vocabulary either.
    """
    known = [*encoder.categorical.values(), encoder.field_values]
    keys = *encoder.field_values.pairs, *encoder.field_values.parents
    texts = [part for key in keys for part in key.split(SEPARATOR)]
    texts += [value for one in known for value in (*one.values, *one.pooled)]
    separators = [value for value in texts if not value.strip(SEPARATOR)]
    return SEPARATOR * (1 + max(map(len, separators), default=0))


def onnx_model(model: MergedModel) -> onnx.ModelProto:
    """The model as ONNX, for any number of rows.

    Inputs are `text.COLUMN` (string [n], `null_text` where there is none) for the columns of the
    field and the categorical features, and `number.COLUMN` (float64 [n], NaN where there is none)
    for the numeric ones. Outputs are those of `Prediction`, and `out_of_range` (bool [n]): whether
    the logit lies beyond the outermost knots of its field value, where that has two or more. Where
    field values have parents `field_level` (int64 [n]) says whose map answered.

    Raises:
        ArtifactError: the model does not fit into one file.
    """
    graph, encoder = _Graph(), model.encoder
    absent = null_text(encoder)
    numeric = _numeric(graph, encoder.numeric)
    ids = _categorical(graph, encoder, absent)
    field = _field_value_id(graph, encoder, absent)
    if encoder.parents:
        levels = encoder.field_values.levels(len(encoder.parents))
        graph.op("Gather", levels, field, result="field_level")
    logit = _base(graph, model.network, ids, numeric)
    mapped = _table(graph, model.serving_map, logit, field)
    if model.auxiliary is not None:
        term = _auxiliary(graph, model.auxiliary, ids, numeric)
        mapped = graph.op("Add", mapped, graph.op("Cast", term, to=TensorProto.DOUBLE))
    calibrated = graph.op("Identity", mapped, result="calibrated_logit")
    inside = PROBABILITY_CLIP, 1 - PROBABILITY_CLIP
    graph.op("Clip", graph.op("Sigmoid", calibrated), *inside, result="probability")
    made = _assembled(graph, model, absent)
    if made.ByteSize() > LARGEST_BYTES:
        raise ArtifactError(
            f"the model takes {made.ByteSize()} bytes as ONNX, one file holds {LARGEST_BYTES}; "
            "lower train_base.max_vocabulary or train_base.embedding_size"
        )
    return made


def _numeric(graph: _Graph, scalings: Sequence[Scaling | LoggedScore]) -> list[str]:
    """The columns of `Encoded.numeric`, float32 [n, 1] each, computed in float64."""
    columns = []
    for scaling in scalings:
        values = graph.input(f"{NUMBER}{scaling.name}", TensorProto.DOUBLE)
        if isinstance(scaling, LoggedScore):
            made = [_logged(graph, values, scaling)]
        else:
            made = _scaled(graph, values, scaling)
        for column in made:
            number = graph.op("Cast", column, to=TensorProto.FLOAT)
            columns.append(graph.op("Unsqueeze", number, [1]))
    return columns


def _scaled(graph: _Graph, values: str, scaling: Scaling) -> list[str]:
    """The one or two columns of a feature, as `Scaling` has them."""
    absent = graph.op("IsNaN", values)
    size = graph.op("Log", graph.op("Add", graph.op("Abs", values), 1.0))
    centred = graph.op("Sub", graph.op("Mul", graph.op("Sign", values), size), scaling.mean)
    scaled = graph.op("Mul", centred, 1.0 / scaling.scale if scaling.scale else 0.0)
    clipped = graph.op("Clip", scaled, -LARGEST_SCALED, LARGEST_SCALED)
    present = graph.op("Where", absent, 0.0, clipped)
    return [present, absent] if scaling.missing else [present]


def _logged(graph: _Graph, values: str, score: LoggedScore) -> str:
    """The logit of a logged score, float64 [n], as `logged_logit` has it."""
    if score.space == "logit":
        return values
    inside = graph.op("Clip", values, SCORE_CLIP, 1 - SCORE_CLIP)
    against = graph.op("Log", graph.op("Sub", 1.0, inside))
    return graph.op("Sub", graph.op("Log", inside), against)


def _ids(
    graph: _Graph, texts: str, vocabulary: Vocabulary, absent: str | None, name: str | None
) -> str:
    """The ids of values; of null, which `absent` stands for, where that is given."""
    null = {} if absent is None else {absent: vocabulary.null_id}
    ids = null | vocabulary.value_ids | dict.fromkeys(vocabulary.pooled, vocabulary.pooled_id)
    return _encoded(graph, texts, [*ids], [*ids.values()], name)


def _encoded(
    graph: _Graph, texts: str, keys: list[str], ids: list[int], name: str | None = None
) -> str:
    """The id of each text; 0 of every other."""
    coded = {"keys_strings": keys or [""], "values_int64s": ids or [0]}
    return graph.op("LabelEncoder", texts, result=name, default_int64=0, **coded)


def _categorical(graph: _Graph, encoder: Encoder, absent: str) -> str | None:
    """int64 [n, C]; None where there is no categorical feature."""
    columns = [
        graph.op("Unsqueeze", _ids(graph, _text(graph, name), vocabulary, absent, None), [1])
        for name, vocabulary in encoder.categorical.items()
    ]
    return graph.op("Concat", *columns, result=IDS, axis=1) if columns else None


def _text(graph: _Graph, column: str) -> str:
    return graph.input(f"{TEXT}{column}", TensorProto.STRING)


def _field_value_id(graph: _Graph, encoder: Encoder, absent: str) -> str:
    name, vocabulary = "field_value_id", encoder.field_values
    texts = [_text(graph, column) for column in encoder.field]
    key = _joined(graph, texts)
    if not encoder.parents and (len(texts) == 1 or not vocabulary.null_id):
        return _ids(graph, key, vocabulary, absent, name)
    known = _ids(graph, key, vocabulary, None, None)
    for columns, ids in _above(encoder):  # looked up for those rows alone that need it
        of_pairs = ids is vocabulary.pairs
        needed = graph.op("Gather", vocabulary.may_be_pairs, known) if of_pairs else None
        rows = graph.op("Squeeze", graph.op("NonZero", needed or _is_unknown(graph, known)), [0])
        of_rows = [graph.op("Gather", _text(graph, column), rows) for column in columns]
        found = _encoded(graph, _joined(graph, of_rows), [*ids], [*ids.values()])
        if of_pairs:
            own = graph.op("Gather", known, rows)
            found = graph.op("Where", _is_unknown(graph, found), own, found)
        known = graph.op("ScatterElements", known, rows, found)
    if not vocabulary.null_id:
        return graph.op("Identity", known, result=name)
    nulls = [_encoded(graph, text, [absent], [vocabulary.null_id]) for text in texts]
    null = graph.op("Max", *nulls)
    return graph.op("Where", _is_unknown(graph, known), null, known, result=name)


def _above(encoder: Encoder) -> Iterator[tuple[Sequence[str], dict[str, int]]]:
    """Columns, and the ids of their joint values: of pairs, where there are any, then parents."""
    vocabulary, parents = encoder.field_values, encoder.parents
    if vocabulary.pairs:
        yield (*encoder.field, *parents), vocabulary.pairs
    levels = vocabulary.levels(len(parents))
    for place in range(len(parents)):
        ids = {key: n for key, n in vocabulary.parents.items() if levels[n] == 1 + place}
        yield parents[place:], ids


def _joined(graph: _Graph, texts: Sequence[str]) -> str:
    key, *others = texts
    for other in others:
        part = graph.op("StringConcat", np.array([SEPARATOR], object), other)
        key = graph.op("StringConcat", key, part)
    return key


def _is_unknown(graph: _Graph, ids: str) -> str:
    return graph.op("Equal", ids, 0)


def _base(graph: _Graph, base: Network, ids: str | None, numeric: list[str]) -> str:
    """The uncalibrated logit, float32 [n]."""
    parts = list(numeric)
    if isinstance(base, LoggedScoreNetwork):
        return graph.op("Squeeze", *numeric, [1], result="uncalibrated_logit")
    if ids is not None:
        rows = graph.op("Add", ids, base.first_row.numpy())
        vectors = graph.op("Gather", base.embedding.weight, rows)
        width = len(base.first_row) * base.embedding.embedding_dim
        parts.insert(0, graph.op("Reshape", vectors, [0, width]))  # 0: as many rows as there are
    hidden = graph.op("Concat", *parts, axis=1)
    for layer in base.layers:
        relu = isinstance(layer, nn.ReLU)
        hidden = graph.op("Relu", hidden) if relu else graph.linear(layer, hidden)
    return graph.op("Squeeze", hidden, [1], result="uncalibrated_logit")


def _table(graph: _Graph, table: PiecewiseLinearMap, uncalibrated: str, field: str) -> str:
    """The serving map, float64 [n]; the segment is found by comparisons in float64, and a float32
    logit equals itself there: it never comes to lie on the other side of a knot.
    """
    knots = table.knots
    logit = graph.op("Cast", uncalibrated, result=LOGIT64, to=TensorProto.DOUBLE)
    own = graph.op("Gather", knots, field)
    reached = graph.op("GreaterOrEqual", graph.op("Unsqueeze", logit, [1]), own)
    counts = graph.op("Cast", reached, to=TensorProto.FLOAT)  # exact, and the fastest to add up
    counted = graph.op("ReduceSum", counts, [1], keepdims=0)
    segment = graph.op("Cast", counted, to=TensorProto.INT64)
    line = graph.op("Add", graph.op("Mul", field, knots.shape[1] + 1), segment)
    segments = table.segment_knots, table.segment_values, table.segment_slopes
    anchor, height, slope = (graph.op("Gather", part.reshape(-1), line) for part in segments)
    rise = graph.op("Mul", slope, graph.op("Sub", logit, anchor))
    several = (knots < np.inf).sum(axis=1) > 1
    highest = np.where(several, np.where(knots < np.inf, knots, -np.inf).max(axis=1), np.inf)
    lowest = np.where(several, knots[:, 0], -np.inf)
    below = graph.op("Less", logit, graph.op("Gather", lowest, field))
    above = graph.op("Greater", logit, graph.op("Gather", highest, field))
    graph.op("Or", below, above, result="out_of_range")
    return graph.op("Add", height, rise, result=MAPPED)


def _auxiliary(graph: _Graph, network: nn.Module, ids: str | None, numeric: list[str]) -> str:
    """The auxiliary network's term, float32 [n]."""
    assert isinstance(network, AuxiliaryNetwork)
    parts = []
    for position, layer in enumerate(network.embeddings):
        assert ids is not None
        assert isinstance(layer, nn.Embedding)
        own = graph.op("Gather", ids, position, axis=1)
        parts.append(graph.op("Gather", layer.weight, own))
    hidden = graph.linear(network.hidden, graph.op("Concat", *parts, *numeric, axis=1))
    term = graph.linear(network.last, graph.op("Relu", hidden))
    return graph.op("Squeeze", term, [1])


def _assembled(graph: _Graph, model: MergedModel, absent: str) -> onnx.ModelProto:
    """The whole file; the tensors at which `part_of` cuts have their types in it."""
    cuts = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, [ROWS]) for n in (LOGIT64, MAPPED)]
    if model.encoder.categorical:
        shape = [ROWS, len(model.encoder.categorical)]
        cuts.append(helper.make_tensor_value_info(IDS, TensorProto.INT64, shape))
    kinds = OUTPUTS | ({"field_level": TensorProto.INT64} if model.encoder.parents else {})
    outputs = [helper.make_tensor_value_info(n, kind, [ROWS]) for n, kind in kinds.items()]
    made = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "adacalib",
            list(graph.inputs.values()),
            outputs,
            graph.constants,
            value_info=cuts,
        ),
        opset_imports=[helper.make_opsetid(*opset) for opset in OPSETS.items()],
        ir_version=IR_VERSION,
        producer_name="adacalib",
    )
    helper.set_model_props(
        made,
        {
            "format": ONNX_FORMAT,
            "map": model.manifest["map"],
            "null_text": absent,
            "field": json.dumps(list(model.encoder.field)),
            "conventions": json.dumps(model.conventions, sort_keys=True),
        },
    )
    return made
