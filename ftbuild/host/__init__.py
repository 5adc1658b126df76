"""This machine: subprocesses, git, disk space, files, standard folders."""
