"""Diagnosis of this machine and of the network."""
