"""Builds, verifies and publishes images of Triton Inference Server with the FasterTransformer backend."""

__version__ = "0.1.0"
