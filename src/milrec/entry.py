"""Where every process of milrec begins: Ctrl-C ends it with one sentence and code 130, from here to its exit.

Importing this module takes Ctrl-C over; only the console script, `python -m milrec` and the processes of a run do so.
While modules are imported nothing is under way, and an interrupt ends the process at once. While a command runs it is
a KeyboardInterrupt, so that checkpoints are written and drafts removed. After that it ends the process at once again.
"""

import os
import signal
import sys
from contextlib import suppress

_CODE = 130  # 128 + SIGINT, as a shell says it
_SENTENCE = b"milrec: interrupted\n"


class _Interrupts:
    """The handler of SIGINT: what Ctrl-C does now, and whether it was pressed."""

    def __init__(self) -> None:
        self.asked = False
        self.said = False
        self.running = False  # a command is

    def __call__(self, number: int, frame: object) -> None:
        self.asked = True
        if self.running:
            raise KeyboardInterrupt
        self.end_at_once()

    def say(self) -> None:
        """The sentence, once; by the bare file, for a signal may come in the middle of anything."""
        if not self.said:
            with suppress(OSError):  # nobody reads it
                os.write(2, _SENTENCE)
            self.said = True

    def end_at_once(self) -> None:
        self.say()
        os._exit(_CODE)

    def take_over(self) -> None:
        signal.signal(signal.SIGINT, self)


_interrupts = _Interrupts()
if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # a shell's background job does not hear Ctrl-C
    _interrupts.take_over()

from collections.abc import Callable  # noqa: E402 - from here on, an interrupt is heard
from typing import TYPE_CHECKING, NoReturn  # noqa: E402

from milrec.interrupts import pause_point  # noqa: E402

if TYPE_CHECKING:
    from types import TracebackType


def main() -> NoReturn:
    """A command of the command line: `milrec`, or `python -m milrec`."""
    from milrec.cli.crash import report_crash

    try:
        from milrec.cli.app import main as command
    except Exception as error:  # milrec, or a package that it needs, is not installed as it should be
        _leave(report_crash(error))
    _run(command, report_crash)


def job() -> NoReturn:
    """A process that a run has started for its jobs."""
    _interrupts.take_over()  # it has a session of its own: its run alone interrupts it, and means it
    from milrec.experiments.job import main as command

    _run(command)


def probe() -> NoReturn:
    """A process that a run has started to time its models."""
    _interrupts.take_over()  # it has a session of its own, as above
    from milrec.experiments.probe import main as command

    _run(command)


def part() -> NoReturn:
    """A process that a server has started to serve with others."""
    _interrupts.take_over()  # it has a session of its own, as above
    from milrec.cli.serve import serve_part as command

    _run(command)


def _print_traceback(error: BaseException) -> int:
    sys.__excepthook__(type(error), error, error.__traceback__)
    return 1


def _run(command: Callable[[], None], last_resort: Callable[[BaseException], int] = _print_traceback) -> NoReturn:
    sys.excepthook, sys.unraisablehook = _uncaught, _unraisable
    code = _code_of(command, last_resort)
    if _interrupts.asked:
        _flush()
        _interrupts.say()
        code = _CODE
    _leave(code)


def _code_of(command: Callable[[], None], last_resort: Callable[[BaseException], int]) -> int:
    """Run a command; what it ends with. An error that nobody expected goes to the last resort.

    An interrupted command may end with anything: a KeyboardInterrupt, the exit that typer makes of it, or, where a
    module was half imported, an error about that. What counts is that it was interrupted.
    """
    heard = signal.getsignal(signal.SIGINT) is _interrupts
    try:
        try:
            _interrupts.running = True
            command()
        finally:
            _interrupts.running = False
            if heard:
                _interrupts.take_over()  # a server has had its own handler
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        _interrupts.asked = True
    except BaseException as error:
        return 1 if _interrupts.asked else last_resort(error)
    return 0


def _leave(code: int) -> NoReturn:
    """What Python does at its end, except that Ctrl-C stays ours.

    Python gives the signal back to the system before it takes its modules apart; from then on an interrupt would kill
    the process without a word and with another code. As in the children of `multiprocessing`, that part is left out.
    """
    import atexit
    import threading

    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    _flush()
    pause_point("exit")
    os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # there is none, nobody reads it, or it is closed
            stream.flush()


def _uncaught(kind: type[BaseException], error: BaseException, trace: "TracebackType | None") -> None:
    """The last net: an interrupt in the few instructions between a command and what follows it."""
    if _interrupts.asked:
        _interrupts.end_at_once()
    sys.__excepthook__(kind, error, trace)


def _unraisable(found: "sys.UnraisableHookArgs") -> None:
    """An interrupt in a finaliser or a callback, where Python cannot raise it and would carry on regardless."""
    if _interrupts.asked and issubclass(found.exc_type, KeyboardInterrupt):
        _interrupts.end_at_once()
    sys.__unraisablehook__(found)
