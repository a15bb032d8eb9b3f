"""Write docs/stories/ anew, from the output of all five stories."""

import a
import b
import c
import d
import e
from story import ROOT, read_options, tell

if __name__ == "__main__":
    options = read_options()
    for module in (a, b, c, d, e):
        options.page = ROOT / "docs" / "stories" / f"{module.STORY.note.lower()}.md"
        tell(module.STORY, options)
