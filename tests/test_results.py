"""What is committed in results/ is of use on any machine."""

import re
import tarfile
from collections.abc import Iterable

import pytest

from tests.support import ROOT

ARCHIVES = sorted((ROOT / "results").rglob("*.tar.xz"))
FOLDER = re.compile(rb'(?<=["=: ])/(?:root|tmp|home|Users|mnt)/[^" ]*')


def folders(texts: Iterable[bytes]) -> list[bytes]:
    """The absolute paths of a machine in these texts."""
    return [path for text in texts for path in FOLDER.findall(text)]


@pytest.mark.parametrize("archive", ARCHIVES, ids=[path.name for path in ARCHIVES])
def test_an_archive_names_no_folder_of_the_machine_that_measured(archive):
    """A config holds what was passed, such as --config.task.name=tokens:PATH: pass relative paths,
    or replace them before the archive is committed.
    """
    with tarfile.open(archive) as packed:
        files = [packed.extractfile(member) for member in packed if member.isfile()]
        assert folders(file.read() for file in files if file) == []


def test_folders_of_a_machine_are_seen():
    """The control of the test before."""
    texts = [
        b'{"name": "tokens:/root/corpus/tokens"}',
        b'"command": "train.py --workdir=/tmp/a --config=configs/lm.py"',
        b'"checkpoint": "/home/me/model"',
        b'"a /n", "results/tmp/", "https://a.org/home/b"',
    ]
    assert folders(texts) == [b"/root/corpus/tokens", b"/tmp/a", b"/home/me/model"]
