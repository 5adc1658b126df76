"""The configuration folder: schema, model families, loader, checks across files."""
