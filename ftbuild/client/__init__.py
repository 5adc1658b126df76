"""A running server, questioned: connections, tensors, expected answers, acceptance."""
