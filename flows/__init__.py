"""What happens in the world: when stages run, what is retried, notifications, promotion."""

from importlib.util import find_spec

if find_spec("prefect") is None:
    raise SystemExit("flows need Prefect; activate the environment: . .venv/bin/activate")

from flows.settings import mask_logs, use_defaults
from pipeline.core.errors import ArtifactError

try:
    use_defaults()  # Prefect reads its settings while it is imported
except ArtifactError as error:
    raise SystemExit(str(error)) from None
mask_logs()
