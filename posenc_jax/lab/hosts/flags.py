"""The parser of the flags of scripts."""

import argparse
import sys
from pathlib import Path
from typing import Any, NoReturn

from posenc_jax.lab.hosts.console import say
from posenc_jax.lab.hosts.exit_status import Refused
from posenc_jax.lab.hosts.files import expanded


class Flags(argparse.ArgumentParser):
    """Refuses a wrong command line in one line, with exit status 2, as train.py does.

    description: shown as it is by --help, such as the docstring of the script.
    """

    def __init__(self, description: str | None, **options: Any):
        super().__init__(
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **options,
        )

    def error(self, message: str) -> NoReturn:
        say(f"error: {message.removeprefix('argument ')}", sys.stderr)
        self.exit(Refused.status)

    @staticmethod
    def path(text: str) -> Path:
        """The type of a flag that is a path: `~` is the home folder, which a shell leaves as it is
        in --out=~/page.html.
        """
        try:
            return expanded(text)
        except Refused as error:
            raise argparse.ArgumentTypeError(str(error)) from None
