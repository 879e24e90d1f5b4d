"""An engine whose package is installed nowhere."""

import a_package_that_nobody_has  # pyright: ignore[reportMissingImports]  # noqa: F401
