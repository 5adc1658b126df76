"""What is attached to a published image: SBOM, provenance, annotations, and the manifests that carry them."""
