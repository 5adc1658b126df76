"""Serves a model repository on an image of ftbuild: containers, Kubernetes, Slurm, and the OpenAI front.

A product of its own beside ftbuild, which imports nothing of it. Its commands are in `cli`, what is decided
of a server in the modules here, what is written or started for a platform in `targets`, and `front` is a
package that runs alone, in a container beside the server's.
"""

__version__ = "0.1.0"
