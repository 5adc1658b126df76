"""The reports of a nightly run, made from its record: JUnit XML, Markdown and a page."""
