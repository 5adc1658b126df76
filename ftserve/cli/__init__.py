"""Commands of ftserve, one module per topic; what makes commands of functions is in ftbuild.cli."""
