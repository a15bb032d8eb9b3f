"""Write the recorded machines of this folder again from the tables in ``retyped/``.

    python tests/machines/retype.py

The result depends on the tables only. Machines that were really recorded lie beside these and are
left alone.
"""

from __future__ import annotations

import json
from pathlib import Path

from retyped import current, elsewhere, instinct, radeon, trouble
from retyped.recording import Recording

HERE = Path(__file__).resolve().parent
AUTHORS = (
    *radeon.MACHINES,
    *instinct.MACHINES,
    *elsewhere.MACHINES,
    *trouble.MACHINES,
    *current.MACHINES,
)


def written(recording: Recording) -> str:
    """Return the text of the file that holds ``recording``."""
    return json.dumps(recording.document(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> None:
    """Write every machine and say how large it became."""
    for author in AUTHORS:
        recording = author()
        text = written(recording)
        path = HERE / f"{recording.name}.json"
        path.write_text(text, encoding="utf-8", newline="\n")
        print(f"{len(text.encode()):8,} bytes  {path.name}")


if __name__ == "__main__":
    main()
