"""The tests that an image must pass, run by `invoke smoke` in a pytest process of its own."""
