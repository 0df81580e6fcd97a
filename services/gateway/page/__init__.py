"""The page at `/`: plain files without a build step, and what serves them."""
