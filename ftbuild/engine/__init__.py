"""Docker: the daemon, buildx, throw-away containers, GPUs."""
