"""From a checkpoint to a model repository."""
