"""Compiles grammars for its parent, without a vocabulary, until its input ends. Started by `shared.law.vetting`."""

import signal
import sys
import threading

from shared.law import grammar, vetting


def _serve() -> None:
    vetting.put(sys.stdout.buffer, vetting.HELLO)
    while (source := vetting.take(sys.stdin.buffer)) is not None:
        vetting.put(sys.stdout.buffer, grammar.validated(source.decode(errors="replace")).encode(errors="replace"))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    threading.stack_size(grammar.STACK_BYTES)
    thread = threading.Thread(target=_serve, name="grammar")
    thread.start()
    thread.join()


if __name__ == "__main__":
    main()
