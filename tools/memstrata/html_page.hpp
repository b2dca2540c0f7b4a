// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "table.hpp"

namespace memstrata::tool {

/// What the report page shows. Every string may hold anything: it is escaped.
struct HtmlPage {
  std::string title;
  std::string lead;                                        ///< One line under the title.
  std::string tier_note;                                   ///< Which tier the figures are for.
  std::vector<std::pair<std::string, std::string>> facts;  ///< Label and value.
  Table table;  ///< The comparison, one column per policy.
  std::vector<std::string> notes;
  std::string footer;
  /// What the charts draw: `limit` (bytes or null) and `policies[]{policy,series{t,live,committed,cached,
  /// reserved,queue,hit_rate}}`; all series of one policy have the length of `t`, which is in seconds.
  nlohmann::json charts;
};

/// `text` with the five characters that mean something to HTML replaced.
[[nodiscard]] std::string escape_html(std::string_view text);

/// One HTML document with its styles, script and data inside: it needs no network and no other file.
[[nodiscard]] std::string render_page(const HtmlPage& page);

}  // namespace memstrata::tool
