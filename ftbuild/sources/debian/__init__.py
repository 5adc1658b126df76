"""Debian packages of local bases: resolved by apt into the lock, downloaded by hash."""
