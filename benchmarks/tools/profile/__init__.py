"""Where the time of one step of decoding goes: on the GPU, between its kernels, in calls of the host.

python -m benchmarks.tools.profile TRACE --layers 24 --of CELL --out FOLDER
python -m benchmarks.tools.profile launches=TRACE graphs=TRACE --layers 24 --of CELL --out FOLDER

TRACE is the record that trace.c, beside this file, makes of a server. Of several, each has its name, and the
picture shows a step of each, to the same scale.
"""
