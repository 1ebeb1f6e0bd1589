"""`python -m milrec` is `milrec`."""

from milrec.cli import main

main()
