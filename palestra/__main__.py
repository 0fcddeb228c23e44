"""`python -m palestra` is `palestra`."""

from palestra.cli import main

main()
