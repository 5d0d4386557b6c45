"""One small check for each promise that a history can show."""
