"""`python -m milrec` is `milrec`."""

from milrec.cli.app import main

main()
