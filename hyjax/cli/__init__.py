"""The command line `hyjax`."""


def main() -> None:
    """Run the command line. Its commands are imported when Ctrl-C can end them: the imports take seconds."""
    from .process import end_on_interrupt, end_quickly

    end_on_interrupt()
    from .app import run

    run()
    end_quickly()
