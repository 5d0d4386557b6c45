"""For the site only: what a docstring calls an example is shown as code, also where there is one of them."""

import re

import griffe


class Examples(griffe.Extension):
    """Reads a section ``Example`` as one of ``Examples``, the only name that the reader of docstrings knows."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        """Rename the section."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
