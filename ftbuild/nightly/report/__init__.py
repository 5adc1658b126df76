"""The reports of a night: JUnit XML, Markdown and a page, all made from its record."""
