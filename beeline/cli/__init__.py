"""The command line: `main` finds the command, each room of commands is imported where it is used."""

from beeline.cli.commands import main

__all__ = ["main"]
