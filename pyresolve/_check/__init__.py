"""Tell whether one library loads, and why not."""
