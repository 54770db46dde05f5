"""What a run found, as rows, and the writers that turn them into Markdown, JSON and SVG."""
