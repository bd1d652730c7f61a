"""A checkpoint as a model repository for the Triton inference server."""

from pathlib import Path
from shutil import copyfile

from google.protobuf.text_encoding import CEscape
from onnxruntime import InferenceSession

from pipeline.core.errors import ReleaseError
from pipeline.core.files import publish
from pipeline.serving.predictor import ONNX_FILE, load

NAME = "adacalib"
TYPES = {
    "tensor(string)": "TYPE_STRING",
    "tensor(double)": "TYPE_FP64",
    "tensor(float)": "TYPE_FP32",
    "tensor(int64)": "TYPE_INT64",
    "tensor(bool)": "TYPE_BOOL",
}


def triton_repository(model: Path, target: Path) -> Path:
    """Publish the folder that `tritonserver --model-repository` takes; what comes back is `target`.

    It holds adacalib/config.pbtxt and adacalib/1/model.onnx, the very file of the checkpoint.
    Rows of a request have no outer batch dimension: every input is one column.

    Args:
        model: a checkpoint with its exports.
        target: the folder to make or replace.

    Raises:
        ArtifactError: a file of the checkpoint is missing or damaged, or a file stands where a
            folder is to be.
        ReleaseError: the folder holds something else, or would hide the module `triton`, which
            torch looks for.
    """
    if target.name == "triton" and target.resolve().parent == Path.cwd():
        raise ReleaseError(
            f"a folder {target} here would hide the Python module triton from torch; give the "
            "repository another name, for example triton-models"
        )
    others = {path.name for path in target.glob("*")} - {NAME}
    if others:
        raise ReleaseError(
            f"{target} holds {min(others)}, which the repository would replace; name a new folder"
        )
    session = load(model).session
    with publish(target) as folder:
        (folder / NAME / "1").mkdir(parents=True)
        copyfile(model / ONNX_FILE, folder / NAME / "1" / ONNX_FILE)
        (folder / NAME / "config.pbtxt").write_text(_config(session))
    return target


def _config(session: InferenceSession) -> str:
    sides = {"input": session.get_inputs(), "output": session.get_outputs()}
    lines = [f'name: "{NAME}"', 'backend: "onnxruntime"', "max_batch_size: 0"]
    for side, tensors in sides.items():
        for tensor in tensors:
            kind = f"data_type: {TYPES[tensor.type]}, dims: [ -1 ]"
            lines.append(f'{side} [ {{ name: "{CEscape(tensor.name, as_utf8=True)}", {kind} }} ]')
    return "\n".join(lines) + "\n"
