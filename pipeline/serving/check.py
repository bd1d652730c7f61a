"""python -m pipeline.serving.check FOLDER: its version and the sha256 of its ONNX file, proved."""

import sys
from pathlib import Path

from pipeline.core.errors import AdaCalibError
from pipeline.serving.predictor import vouched


def main() -> None:
    """Print the two; a damaged folder is one sentence on stderr and exit code 1."""
    try:
        print(*vouched(Path(sys.argv[1])))
    except AdaCalibError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
