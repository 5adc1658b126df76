"""The gates an image must pass, and the report they share."""
