"""The reports as JUnit's XML, which CI systems read: a suite an operator, a test case a cell."""

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from oneop.check.console import finding_text
from oneop.check.results import Report, Result
from oneop.report import files


def write(path: Path, reports: Sequence[Report]) -> None:
    """Writes the file whole or not at all. Raises OneopError where it cannot be written."""
    files.write(path, ElementTree.tostring(tree(reports), encoding="utf-8", xml_declaration=True), "the JUnit file")


def tree(reports: Sequence[Report]) -> ElementTree.Element:
    root = ElementTree.Element("testsuites", name="oneop check")
    for report in reports:
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=report.operator,
            tests=str(len(report.results)),
            failures=str(len(report.failures)),
            skipped=str(sum(result.status == "skipped" for result in report.results)),
            errors="0",
            time=f"{report.seconds:.3f}",
        )
        for result in report.results:
            _add(suite, report, result)
    return root


def _add(suite: ElementTree.Element, report: Report, result: Result) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=f"{report.operator}.{result.column}",
        name=result.property,
        time=f"{result.seconds:.3f}",
    )
    if result.status == "skipped":
        ElementTree.SubElement(case, "skipped", message=_clean(result.reason or ""))
    if result.status == "failed" and result.finding is not None:
        failure = ElementTree.SubElement(case, "failure", message=_clean(result.finding.summary))
        failure.text = _clean(finding_text(result.finding))


def _clean(text: str) -> str:
    """XML has no word for most control characters."""
    return "".join(letter if letter in "\n\t" or letter >= " " else "?" for letter in text)
