"""What happens in the world: when stages run, what is retried, notifications, promotion."""

from flows.local import use_defaults
from flows.secrets import mask_logs

use_defaults()  # Prefect reads its settings while it is imported
mask_logs()
