"""From tested images to a registry: push, attest, promote; and what is published there."""
