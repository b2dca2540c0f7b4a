# SPDX-License-Identifier: Apache-2.0
"""Where a C++ source can be changed by one small mistake, and what the line then reads."""
import re
from dataclasses import dataclass

# (pattern, replacement, what the mistake is). The style of the sources puts blanks around binary operators and none
# around those of templates, references and pointers, which tells them apart.
OPERATORS = [
    (r" < ", " <= ", "boundary"),
    (r" <= ", " < ", "boundary"),
    (r" > ", " >= ", "boundary"),
    (r" >= ", " > ", "boundary"),
    (r" == ", " != ", "negated comparison"),
    (r" != ", " == ", "negated comparison"),
    (r" && ", " || ", "logic"),
    (r" \|\| ", " && ", "logic"),
    (r" \+ ", " - ", "arithmetic"),
    (r" - ", " + ", "arithmetic"),
    (r" \* ", " / ", "arithmetic"),
    (r" / ", " * ", "arithmetic"),
    (r" % ", " / ", "arithmetic"),
    (r" & ", " | ", "bits"),
    (r" \| ", " & ", "bits"),
    (r" \+= ", " -= ", "arithmetic"),
    (r" -= ", " += ", "arithmetic"),
    (r" \|= ", " &= ", "bits"),
    (r" &= ", " |= ", "bits"),
    (r"\+\+(?=\w)", "--", "step"),
    (r"(?<=\()!(?=[\w(])", "", "negation lost"),
    (r"\btrue\b", "false", "constant"),
    (r"\bfalse\b", "true", "constant"),
    (r"\bstd::min\b", "std::max", "bound"),
    (r"\bstd::max\b", "std::min", "bound"),
    (r"(?<=[ (\[{])0(?=[;,)\]} ])", "1", "constant"),
    (r"(?<=[ (\[{])1U?(?=[;,)\]} ])", "2", "constant"),
]
# A statement of one line that does something and gives nothing back: a call or an assignment.
STATEMENT = re.compile(r"^\s+(?:[a-z_][\w.>\-:\[\]]*\(.*\)|[a-z_][\w.>\-\[\]]* [+\-|&]?= .*);$")
NOT_A_STATEMENT = re.compile(r"^\s+(?:return|const|auto|static_cast|throw|using|delete|goto|static|explicit|virtual)\b")
# Lines that say what a thing is, not what it does, or that say nothing in the build that is run.
NOT_CODE = re.compile(
    r"^\s*(?:#|template\b|using\b|static_assert\b|friend\b|requires\b|concept\b|namespace\b|\[\[nodiscard\]\] friend)"
    r"|\boperator\b|= (?:default|delete);|\\$|\bnoexcept\(|MEMSTRATA_ASSERT|NOLINT|std::unreachable"
)


@dataclass(frozen=True)
class Site:
    """One change: line number (from 1), the mistake, and the line as it then reads."""

    line: int
    mistake: str
    text: str


def masked(text):
    """The text with comments and literals blanked out, every position kept."""

    def blank(match):
        return re.sub(r"[^\n]", " ", match[0])

    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\''
    return re.sub(pattern, blank, text, flags=re.S)


def sites(text):
    """Every site of a source, in the order of its lines."""
    found = []
    lines = text.splitlines()
    in_concept = False
    for number, (line, bare) in enumerate(zip(lines, masked(text).splitlines()), 1):
        in_concept = in_concept or re.match(r"^\s*concept\b", bare) is not None
        if in_concept:
            in_concept = not bare.rstrip().endswith("};") and not bare.rstrip().endswith(">;")
            continue
        if not bare.strip() or NOT_CODE.search(bare):
            continue
        for pattern, replacement, mistake in OPERATORS:
            for match in re.finditer(pattern, bare):
                found.append(Site(number, mistake, line[: match.start()] + replacement + line[match.end() :]))
        complete = bare.count("(") == bare.count(")") and bare.count("{") == bare.count("}")
        if complete and STATEMENT.match(bare) and not NOT_A_STATEMENT.match(bare):
            indent = line[: len(line) - len(line.lstrip())]
            found.append(Site(number, "statement lost", indent + ";"))
    return found


def applied(text, site):
    """The source with this one line changed."""
    lines = text.splitlines(keepends=True)
    lines[site.line - 1] = site.text + "\n"
    return "".join(lines)
