"""The command line, run in this process, which saves seconds of loading for each command."""

import contextlib
import io
import subprocess
import sys

from milrec.cli.app import main


def milrec(*arguments, cwd=None) -> subprocess.CompletedProcess:
    """A command: its code, what it printed and what it said was wrong."""
    command = ["milrec", *map(str, arguments)]
    out, err = io.StringIO(), io.StringIO()
    code: int | str = 0
    with contextlib.chdir(cwd or "."), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        before, sys.argv = sys.argv, command
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        finally:
            sys.argv = before
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())


def succeeds(*arguments, cwd=None) -> subprocess.CompletedProcess:
    done = milrec(*arguments, cwd=cwd)
    assert done.returncode == 0, (arguments, done.stderr[-2000:])
    return done


def in_a_process(*arguments, cwd=None, **options) -> subprocess.CompletedProcess:
    """The same in a process of its own, for what is about processes."""
    command = [sys.executable, "-m", "milrec", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, **options)
