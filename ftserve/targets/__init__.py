"""Renderings of a deployment, a module each, and containers of this machine: what is written or started."""
