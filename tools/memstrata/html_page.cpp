// SPDX-License-Identifier: Apache-2.0
#include "html_page.hpp"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "report_page_assets.hpp"
#include "table.hpp"

namespace memstrata::tool {
namespace {

/// JSON inside a script element: no `<` may appear, or the text could end the element.
std::string script_data(const nlohmann::json& data) {
  // Bytes that are no UTF-8 (a file name may hold anything) become the replacement character.
  const std::string plain = data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::string text;
  text.reserve(plain.size());
  for (const char c : plain) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

std::string facts_html(const HtmlPage& page) {
  std::string html = "<section><dl class=\"facts\">\n";
  for (const auto& [label, value] : page.facts) {
    html += "<div><dt>" + escape_html(label) + "</dt><dd>" + escape_html(value) + "</dd></div>\n";
  }
  return html + "</dl></section>\n";
}

std::string table_html(const Table& table) {
  std::string html = "<div class=\"scroll\"><table>\n<thead><tr>";
  for (const Column& column : table.columns()) {
    html += "<th scope=\"col\">" + escape_html(column.title) + "</th>";
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const auto& [cells, is_group] : table.rows()) {
    if (is_group) {
      html += R"(<tr class="group"><th scope="rowgroup" colspan=")" +
              std::to_string(table.columns().size()) + "\">" + escape_html(cells.front()) +
              "</th></tr>\n";
      continue;
    }
    html += "<tr>";
    for (std::size_t i = 0; i < cells.size(); ++i) {
      html += i == 0 ? "<th scope=\"row\">" + escape_html(cells[i]) + "</th>"
                     : "<td>" + escape_html(cells[i]) + "</td>";
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string notes_html(const HtmlPage& page) {
  if (page.notes.empty()) {
    return {};
  }
  std::string html = "<section><h2>Notes</h2><ul class=\"notes\">\n";
  for (const std::string& note : page.notes) {
    html += "<li>" + escape_html(note) + "</li>\n";
  }
  return html + "</ul></section>\n";
}

constexpr std::string_view mark =
    R"(<svg id="mark" width="34" height="34" viewBox="0 0 34 34" role="img" aria-label="memstrata">)"
    R"(<g fill="currentColor"><rect x="2" y="4" width="30" height="6" rx="2"/>)"
    R"(<rect x="2" y="14" width="21" height="6" rx="2" opacity=".75"/>)"
    R"(<rect x="2" y="24" width="12" height="6" rx="2" opacity=".5"/></g></svg>)";

constexpr std::string_view charts_html =
    R"(<section id="memory"><h2>Memory over time</h2>
<p>Committed is physical memory held, live the part that running requests use, cached the idle part kept for later
hits, reserved the address space. Click a name to hide or show its line; point at the chart to read values.</p>
<div class="row tabs" id="policies" role="group" aria-label="Policy"></div></section>
<section id="committed"><h2>Committed memory, every policy</h2></section>
<section id="queue"><h2>Requests waiting</h2><p>Requests that have arrived and are not admitted yet.</p></section>
<section id="hits"><h2>Hit rate</h2><p>Share of the full prompt blocks found in the cache, from the start to that moment.</p></section>
<noscript><section><p>The charts need JavaScript; the table and the notes do not.</p></section></noscript>
)";

}  // namespace

std::string escape_html(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string render_page(const HtmlPage& page) {
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n<title>";
  html += escape_html(page.title);
  html += "</title>\n<style>\n";
  html += page_style;
  html += "</style>\n</head>\n<body>\n<main>\n<header>";
  html += mark;
  html += "<div><h1>" + escape_html(page.title) + "</h1>\n<p class=\"lead\">" +
          escape_html(page.lead) + "</p>\n<p class=\"tier\">" + escape_html(page.tier_note) +
          "</p></div></header>\n";
  html += facts_html(page);
  html += "<section><h2>Comparison</h2>" + table_html(page.table) + "</section>\n";
  html += charts_html;
  html += notes_html(page);
  html += "<footer>" + escape_html(page.footer) + "</footer>\n</main>\n";
  html +=
      R"(<script type="application/json" id="data">)" + script_data(page.charts) + "</script>\n";
  html += "<script>\n";
  html += page_script;
  html += "</script>\n</body>\n</html>\n";
  return html;
}

}  // namespace memstrata::tool
