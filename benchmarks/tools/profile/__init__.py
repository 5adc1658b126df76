"""Where the time of one step of decoding goes: on the GPU, between its kernels, in calls of the host.

python -m benchmarks.tools.profile TRACE --of CELL --out FOLDER

TRACE is the record that trace.c, beside this file, makes of a server.
"""
