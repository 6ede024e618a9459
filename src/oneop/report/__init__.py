"""One self-contained HTML page, and the plots on it: what `oneop check`, `bench` and `epochs` report with."""

from oneop.report.page import Cell, Code, Figure, Section, Status, Table, Text, write_page

__all__ = ["Cell", "Code", "Figure", "Section", "Status", "Table", "Text", "write_page"]
