"""Attachments of a published image: SBOM, provenance, annotations, and the manifests that carry them."""
