"""Hooks of mkdocs: pages made of code, what is found by its name, links out of docs/, names of files, maths, drawings, room for wide tables, and the
version that each page states."""

import importlib.metadata
import os
import pathlib
import re
import sys
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))

import _commands_page  # noqa: E402
import _lessons  # noqa: E402
import _maths  # noqa: E402
import _scheme_drawings  # noqa: E402
import _tasks_page  # noqa: E402
from mkdocs.exceptions import PluginError  # noqa: E402
from mkdocs.structure.files import File, Files  # noqa: E402

ONLY = "SKIPWAY_DOCS_LESSON"                # builds one lesson alone
OUTSIDE = re.compile(r"(\]\()((?:\.\./)+)([^)#\s]+)")
OUTPUT = re.compile(r'<div data-output="([^"]+)"></div>')
TABLE = re.compile(r"<table(?P<attrs>[^>]*)>.*?</table>", re.S)
CELL_CODE = re.compile(r"<code>([^<]{30,})</code>")
PRE = re.compile(r"<pre(?![^>]*tabindex)")
RULE = re.compile(r"^<!-- rule: (\S+) -->$", re.M)
NAMED = re.compile(r"^<!-- file: (\S+) -->\n```(\w+)$", re.M)        # a block of code that is a file
LISTED = "<!-- pages -->"                   # where the pages of a folder are listed
HEADING = re.compile(r"^# (.+)$", re.M)
ROW = re.compile(r"^\|[-:| ]+\|$", re.M)
HEADS = re.compile(r"<thead>.*?</thead>", re.S)
WIDE = 5                                    # a table of so many columns takes the room of the page's table of contents
PARTS: dict[str, str] = {}


def on_config(config: Any) -> Any:
    """The version for the foot of each page, and the parts of the navigation that are found by file name."""
    PARTS.clear()
    commit = _lessons.commit()
    version = importlib.metadata.version("skipway")
    config.copyright = f'<span id="built-from">Built from skipway {version}{f", commit {commit}" if commit else ""}</span>'
    if os.environ.get(ONLY):
        config.nav = [{"skipway": "index.md"}, {"Learn": [f"learn/{pathlib.Path(os.environ[ONLY]).stem}.md"]}]
        return config
    for entry in config.nav:
        for section, items in entry.items():
            if section == "Learn":
                items[1:] = _pages("learn") + [{"What each lesson shows": page} for page in ("lessons-coverage.md",) if not _absent(page)]
            elif section == "Decisions":
                items[1:] = _pages("decisions")
            elif isinstance(items, list):
                items[:] = [item for item in items if not isinstance(item, dict) or not _absent(next(iter(item.values())))]
    for name, text in (("rewire.md", "Rewiring"),):
        if (HERE / name).is_file():
            next(e["Reference"] for e in config.nav if "Reference" in e).insert(-4, {text: name})
    return config


def _pages(folder: str) -> list[str]:
    """All pages of a folder but its index: numbered ones first."""
    found = {p.stem for p in (HERE / folder).glob("*.md")} - {"index"}
    if folder == "learn":
        found |= {p.stem for p in _lessons.found()}
    return [f"{folder}/{name}.md" for name in sorted(found, key=lambda n: (not n[0].isdigit(), n))]


def _listed(folder: str) -> str:
    """A line for each of them: its title, as a link."""
    def title(name: str) -> str:
        lesson = HERE / folder / name.replace(".md", ".py")
        if lesson in _lessons.found():
            return _lessons.title(lesson)
        match = HEADING.search((HERE / folder / name).read_text(encoding="utf-8"))
        return match[1] if match else name
    names = [page.rpartition("/")[2] for page in _pages(folder)]
    return "\n".join(f"- [{title(name)}]({name})" for name in names)


def _absent(page: str) -> bool:
    return page not in MADE and not (HERE / page).is_file()


MADE = {"reference/commands.md": _commands_page.commands_page, "reference/tasks.md": _tasks_page.tasks_page}


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are made of code, and the files outside docs/ that pages link to."""
    only = os.environ.get(ONLY)
    if only:
        for file in list(files.documentation_pages()):
            files.remove(file)
        files.append(File.generated(config, "index.md", content="# One lesson\n"))
        _add(files, config, _lessons.run(pathlib.Path(only)))
        return files
    for uri, make in MADE.items():
        files.append(File.generated(config, uri, content=make()))
    for path in _lessons.found():
        try:
            _add(files, config, _lessons.run(path))
        except (_lessons.LessonError, ValueError) as error:
            raise PluginError(str(error)) from error
    seen: set[str] = set()
    for page in files.documentation_pages():
        for _, _, name in OUTSIDE.findall(page.content_string):
            if name not in seen and not (HERE / name).exists() and (ROOT / name).is_file():
                seen.add(name)
                files.append(File.generated(config, f"source/{name}.txt", content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def _add(files: Files, config: Any, lesson: _lessons.Lesson) -> None:
    PARTS.update(lesson.parts)
    files.append(File.generated(config, f"learn/{lesson.name}.md", content=lesson.markdown))


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links to files outside docs/ go to their copies in the site; code that is a file has its name; each scheme gets its drawing."""
    depth = page.file.src_uri.count("/")

    def inside(match: re.Match[str]) -> str:
        start, ups, name = match.groups()
        if ups.count("../") <= depth or not (ROOT / name).is_file():
            return match[0]
        return f"{start}{'../' * depth}source/{name}.txt"

    markdown = NAMED.sub(r'```\2 title="\1"', markdown)
    markdown = RULE.sub(lambda m: f"```python title=\"{m[1]}\"\n{(ROOT / m[1]).read_text(encoding='utf-8').rstrip()}\n```", markdown)
    if page.file.src_uri == "schemes.md":
        markdown = _scheme_drawings.placed(markdown, PARTS)
    if LISTED in markdown:
        markdown = markdown.replace(LISTED, _listed(page.file.src_uri.rpartition("/")[0]))
    if _columns(markdown) >= WIDE:
        page.meta["hide"] = [*page.meta.get("hide", ()), "toc"]
    return OUTSIDE.sub(inside, markdown)


def _columns(markdown: str) -> int:
    """Of the widest table, those in outputs of a lesson included."""
    shown = [PARTS.get(key, "") for key in OUTPUT.findall(markdown)]
    return max([0, *(row.count("|") - 1 for row in ROW.findall(markdown)), *(h.count("<th") - 1 for text in shown for h in HEADS.findall(text))])


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Outputs, MathML, tables that scroll and can be searched, and code that the keyboard can scroll."""
    def output(match: re.Match[str]) -> str:
        if match[1] not in PARTS:
            raise PluginError(f"{page.file.src_uri}: no output {match[1]!r} was made for this page")
        return PARTS[match[1]]

    text = _maths.converted(html)
    text = TABLE.sub(lambda m: f'<div class="table" role="region" aria-label="Table" tabindex="0"{_filtered(m[0])}>{_breaking(m[0])}</div>', text)
    return PRE.sub('<pre tabindex="0"', OUTPUT.sub(output, text))


def on_post_page(output: str, page: Any, config: Any) -> str:
    """A name for the search dialog, which the theme leaves without one; those of the links at the foot, which it escapes twice."""
    output = re.sub(r'(?<= aria-label=")[^"]*', lambda m: m[0].replace("&amp;amp;", "&amp;"), output)
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')


def _filtered(table: str) -> str:
    return " data-filter" if table.count("<tr") > 9 and "doc-section-item" not in table else ""      # of a page's own, not of a docstring


def _breaking(table: str) -> str:
    """With places where long code may go on in the next line."""
    return CELL_CODE.sub(lambda m: '<code class="long">' + re.sub(r"([/_])(?=\w)", r"\1<wbr>", m[1]) + "</code>", table)


def on_post_build(config: Any) -> None:
    """Takes out what a site without an address cannot use, and lets the search tell words with digits apart."""
    site = pathlib.Path(config.site_dir)
    workers = list(site.glob("assets/javascripts/workers/search.*.min.js"))
    if len(workers) != 1:
        raise PluginError(f"{len(workers)} search workers in the site, wanted 1; see _told_apart in docs/_site.py")
    _told_apart(workers[0])
    for name in ("sitemap.xml", "sitemap.xml.gz", "404.html"):
        (site / name).unlink(missing_ok=True)       # they need the address of the site, which has none


def _told_apart(worker: pathlib.Path) -> None:
    """lunr merges nodes of its word tree whose letters and node numbers read alike one after another ("1" to 23 and "12" to 3), so that it finds
    words that no page has, and fails on them (lunr.js issue 503): a comma after each number keeps them apart."""
    text = worker.read_text(encoding="utf-8")
    mended, count = re.subn(r"(\w)=\1\+(\w)\+(\w)\.id\b", r"\1=\1+\2+\3.id+','", text)
    if count != 1:
        raise PluginError(f"{worker.name}: {count} places join a letter and a node number, wanted 1; see _told_apart in docs/_site.py")
    worker.write_text(mended, encoding="utf-8")
