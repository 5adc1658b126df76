"""Mutation testing: small faults in the sources, one at a time, which the unit tests must notice.

Made here, since the libraries do not fit. mutmut 3 changes neither constants of modules nor decorated
functions, where this project has its tables, patterns and tolerances. cosmic-ray leaves texts and tables
alone, changes the files of the checkout, and starts pytest anew for each mutant.
"""
