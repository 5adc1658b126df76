"""Progress messages of long work."""

from collections.abc import Callable

# Takes one message, which may have several lines.
Reporter = Callable[[str], None]
