"""What the world outside still has of what the lock pins: asked nightly, since both upstreams are dead."""
