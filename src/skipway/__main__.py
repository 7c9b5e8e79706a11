"""`python -m skipway` is the `skipway` script."""

from skipway.cli import main

main()
