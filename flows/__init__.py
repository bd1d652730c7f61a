"""What happens in the world: when stages run, what is retried, notifications, promotion."""

from flows.settings import mask_logs, use_defaults

use_defaults()  # Prefect reads its settings while it is imported
mask_logs()
