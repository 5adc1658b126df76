"""A seeded fuzzer of Triton's ports: what it sends, what it sends it to, and whether the server lives on."""
