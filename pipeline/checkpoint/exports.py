"""The other forms of a checkpoint, made from the merged model in memory: ONNX and torch.export."""

import io
from pathlib import Path

import torch
from torch.export import Dim, ExportedProgram

from pipeline.checkpoint.merged_model import MergedModel, MergedNetwork
from pipeline.checkpoint.onnx_graph import onnx_model
from pipeline.core.checksums import MANIFEST, seal
from pipeline.core.files import read_json
from pipeline.model.network import Network, ServedNetwork
from pipeline.serving.predictor import ONNX_FILE

PROGRAM_FILE = "model.pt2"
TRACED_ROWS = 4  # 0 and 1 would be taken for constants
TRACES = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node")


def export(model: MergedModel, folder: Path) -> None:
    """Add model.onnx and model.pt2 to the folder of a checkpoint, and seal it anew.

    Same model, same bytes: paths and line numbers, which a trace takes along, are removed.

    Args:
        model: what `checkpoint.load` made of the folder.
        folder: the checkpoint.

    Raises:
        ArtifactError: the model does not fit into one ONNX file.
    """
    (folder / ONNX_FILE).write_bytes(onnx_model(model).SerializeToString(deterministic=True))
    buffer = io.BytesIO()
    torch.export.save(program_of(model.network), buffer)
    (folder / PROGRAM_FILE).write_bytes(buffer.getvalue())
    manifest = read_json(folder / MANIFEST)
    (folder / MANIFEST).unlink()
    seal(folder, {key: manifest[key] for key in manifest.keys() - {"files", "sha256"}})


def program_of(network: MergedNetwork) -> ExportedProgram:
    """The network as torch.export has it, for any number of rows and for int64 ids."""
    n_categorical, n_numeric = _widths(network.base)
    arguments = (
        torch.zeros(TRACED_ROWS, n_categorical, dtype=torch.int64),
        torch.zeros(TRACED_ROWS, n_numeric),
        torch.zeros(TRACED_ROWS, dtype=torch.int64),
    )
    program = torch.export.export(network, arguments, dynamic_shapes=({0: Dim.DYNAMIC},) * 3)
    program.example_inputs = None  # they would be pickled
    for node in program.graph.nodes:
        for trace in TRACES:
            node.meta.pop(trace, None)
    return program


def _widths(base: Network) -> tuple[int, int]:
    """Number of categorical and of numeric columns that a base network reads."""
    if isinstance(base, ServedNetwork):
        return 0, 1
    first, n_categorical = base.layers[0], len(base.first_row)
    assert isinstance(first, torch.nn.Linear)
    return n_categorical, first.in_features - n_categorical * base.embedding.embedding_dim
