"""For mkdocs: files of the repository that the pages link to become part of the site, under their own paths.

Links are those of the repository, so that they work there too: a page says ``../examples/story.py``, and in
the site that is ``examples/story.py``.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"(\]\()([^)#:\s]+)(?=[)#])")


def target(page: str, link: str) -> str:
    """The path in the repository that a link on a page of the repository leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def of_repository(file: File) -> str:
    """The path in the repository of a file of the site."""
    inside = file.generated_by is None
    return f"docs/{file.src_uri}" if inside else file.src_uri


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for file in list(files.documentation_pages()):
        page = of_repository(file)
        for _, link in LINK.findall(file.content_string):
            path = target(page, link)
            if not path.startswith("docs/") and files.get_file_from_path(path) is None:
                files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = of_repository(page.file)

    def in_site(match: re.Match[str]) -> str:
        path = target(here, match[2]).removeprefix("docs/")
        return match[1] + posixpath.relpath(path, posixpath.dirname(page.file.src_uri) or ".")

    return LINK.sub(in_site, markdown)
