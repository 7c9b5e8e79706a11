"""Files as programs want them named: from the root of the project, or whole where they lie outside."""

import os
from urllib.parse import quote


def root() -> str:
    """The folder that paths are given from: GITHUB_WORKSPACE where the current folder lies in it, else the current folder.

    Code scanning and annotations count from the checkout's root, also where a step runs in a folder below it.
    """
    here = os.getcwd()
    workspace = os.environ.get("GITHUB_WORKSPACE", "")
    return workspace.rstrip(os.sep) if workspace and inside(here, workspace) is not None else here


def inside(file: str, folder: str) -> str | None:
    """The path from `folder`, with forward slashes, or None where the file does not lie in it."""
    whole = os.path.normpath(os.path.join(os.getcwd(), file))
    start = os.path.normpath(folder)
    if whole == start:
        return "."
    start = start if start.endswith(os.sep) else start + os.sep
    return whole[len(start):].replace(os.sep, "/") if whole.startswith(start) else None


def uri(path: str) -> str:
    """A path with forward slashes as a relative reference or, where it is absolute, as a file: URI."""
    coded = quote(path.encode("utf-8", "surrogatepass"), safe="/!$&'()*+,;=@~")
    if not os.path.isabs(path):
        return coded
    return f"file://{'' if coded.startswith('/') else '/'}{coded}"
