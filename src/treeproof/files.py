"""Files that take the place of others in one step, so that nothing is ever half-written."""

import contextlib
import errno
import secrets
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def in_place_of(target: Path) -> Iterator[Path]:
    """Give a name to write to, which takes the place of a file when that has worked.

    Parameters
    ----------
    target : path
        The file. The name beside it has the same ending, for writers that go by it.

    Raises
    ------
    OSError
        Where the system does not let us write, and the file stays as it is; or in the place of a
        device or a pipe: to rename over it would take it away from every other program.
    """
    if target.exists() and not (target.is_file() or target.is_dir()):
        raise OSError(errno.EINVAL, "it is no regular file")
    temporary = target.with_name(f".{target.stem}.{secrets.token_hex(8)}{target.suffix}")
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
