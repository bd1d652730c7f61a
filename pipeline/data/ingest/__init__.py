"""Sources of logs: files by a mapping, public logs, a simulator."""
