"""Publishing of tested images: push, attest, tag; and the index of published images."""
