"""What happens in the world: when stages run, what is retried, notifications, promotion."""

from flows.secrets import mask_logs
from flows.settings import use_defaults

use_defaults()  # Prefect reads its settings while it is imported
mask_logs()
