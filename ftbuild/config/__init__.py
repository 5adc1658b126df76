"""The configuration folder: schema, models.yaml families, loader, cross-file checks."""
