"""Builds the site: checks that generated pages are current, runs the lessons, and writes build/site with strict links. Works offline.

    python docs/build.py                                        the whole site
    python docs/build.py --lesson docs/learn/01-add.py          one lesson alone, in build/lesson
    python docs/build.py --serve                                then serves it on the loopback address, like `skipway docs`

Needs `pip install -c constraints.txt -e '.[all,docs]'`. A lesson whose code, and the package under it, have not changed is not run again.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time

import click

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent


def main(arguments: list[str]) -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--lesson", type=pathlib.Path, metavar="FILE", help="build this lesson alone, into build/lesson")
    options.add_argument("--site", type=pathlib.Path, metavar="FOLDER", help="where the site goes (default build/site)")
    options.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="lessons run at a time (default %(default)s)")
    options.add_argument("--serve", action="store_true", help="show the site afterwards")
    given = options.parse_args(arguments)
    began = time.perf_counter()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if given.lesson is None and subprocess.run([sys.executable, str(HERE / "generate.py"), "--check"]).returncode:
        return 1
    import _lessons
    if given.lesson is not None and not given.lesson.is_file():
        print(f"--lesson {given.lesson}: no such file; lessons are docs/learn/NN-name.py", file=sys.stderr)
        return 2
    try:
        _lessons.run_all([given.lesson.resolve()] if given.lesson else _lessons.found(), given.workers, lambda text: print(text, flush=True))
    except (_lessons.LessonError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    site = (given.site or ROOT / "build" / ("lesson" if given.lesson else "site")).resolve()
    os.environ["NO_MKDOCS_2_WARNING"] = "1"
    if given.lesson:
        os.environ["SKIPWAY_DOCS_LESSON"] = str(given.lesson.resolve())
    from mkdocs.__main__ import cli
    strict = "--no-strict" if given.lesson else "--strict"
    try:
        cli.main(["build", "--quiet", "--config-file", str(ROOT / "mkdocs.yml"), "--site-dir", str(site), strict], standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return 1
    start = site / (f"learn/{given.lesson.stem}.html" if given.lesson else "index.html")
    print(f"{start}  built in {time.perf_counter() - began:.0f} s")
    if given.serve:
        return subprocess.run([sys.executable, "-m", "skipway", "docs", "--site", str(site)]).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
