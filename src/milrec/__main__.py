"""`python -m milrec` is `milrec`."""

from milrec.entry import main

main()
