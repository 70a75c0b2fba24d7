"""The command line `hyjax`."""


def main() -> None:
    """Run the command line. Its commands are imported when Ctrl-C can end them: the imports take seconds."""
    from .interrupt import end_on_interrupt

    end_on_interrupt()
    from .app import run
    from .quick_end import end_quickly

    run()
    end_quickly()
